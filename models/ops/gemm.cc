// Matrix products come from libraries: oneDNN for float (its kernels reach the processor's peak at
// the model's shapes), CBLAS for double, which oneDNN does not support on CPUs.
#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <string_view>

#include "collectives/base/error.h"
#include "collectives/base/out_of_memory.h"
#include "models/ops/kernels.h"

// Builds of OpenBLAS that choose their kernels at run time export these, but no header declares them.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace lockstep::host {
namespace {

// On processors that it does not know yet, OpenBLAS falls back to the kernels of one of 2004, at a
// quarter of the speed.
bool choose_kernels_of_new_processors() {
  constexpr const char* variable = "OPENBLAS_CORETYPE";
  if (openblas_get_corename() != std::string_view("Prescott") || std::getenv(variable) ||
      !gotoblas_dynamic_init || !gotoblas_dynamic_quit)
    return false;
  const unsigned instructions = dnnl_get_effective_cpu_isa();
  const auto has = [&](unsigned set) { return (instructions & set) == set; };
  if (!has(dnnl_cpu_isa_avx2)) return false;
  setenv(variable, has(dnnl_cpu_isa_avx512_core) ? "SkylakeX" : "Haswell", 0);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(variable);
  return true;
}

// Before main(): no thread computes yet, or reads the environment.
[[maybe_unused]] const bool has_chosen = choose_kernels_of_new_processors();

}  // namespace

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
