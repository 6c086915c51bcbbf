// Matrix products come from libraries: oneDNN for float (its kernels reach the processor's peak at
// the model's shapes), CBLAS for double, which oneDNN does not support on CPUs.
#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "collectives/base/error.h"
#include "collectives/base/out_of_memory.h"
#include "models/ops/kernels.h"

namespace lockstep::host {

void sgemm(bool transpose_a, bool transpose_b, Count m, Count n, Count k, const float* a, Count lda,
           const float* b, Count ldb, float beta, float* c, Count ldc) {
  // oneDNN computes wrong products if OpenMP gives it fewer threads than omp_get_max_threads()
  // promises.
  if (omp_get_max_threads() > omp_get_thread_limit()) omp_set_num_threads(omp_get_thread_limit());
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                          1.0F, a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_out_of_memory)
    throw OutOfMemory(
        fmt::format("out of memory: oneDNN has none for a {} x {} x {} product", m, n, k));
  require(status == dnnl_success, [&] {
    return fmt::format("oneDNN refuses a {} x {} x {} product (status {})", m, n, k,
                       static_cast<int>(status));
  });
}

void dgemm(bool transpose_a, bool transpose_b, Count m, Count n, Count k, const double* a,
           Count lda, const double* b, Count ldb, double beta, double* c, Count ldc) {
  const auto integer = [](Count value) { return static_cast<int>(value); };
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, integer(m), integer(n), integer(k), 1.0, a,
              integer(lda), b, integer(ldb), beta, c, integer(ldc));
}

}  // namespace lockstep::host
