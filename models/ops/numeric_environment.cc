#include "models/ops/numeric_environment.h"

#include <gnu/libc-version.h>

#include <cstdlib>

#include "models/ops/kernels_info.h"

namespace lockstep {

std::vector<std::pair<std::string, std::string>> numeric_environment() {
  std::vector<std::pair<std::string, std::string>> all = {
      {"the library of products in f32", float_gemm_library()},
      {"the library of products in bf16", bf16_gemm_library()},
      {"the library of products in f64", double_gemm_library()},
      {"the C library", gnu_get_libc_version()}};
  // Not those that only place or wake threads: each host may need its own.
  constexpr const char* variables[] = {
      // oneDNN, OpenBLAS, OpenMP, the C library's functions
      "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
      "DNNL_DEFAULT_FPMATH_MODE", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
      "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_SCHEDULE", "GLIBC_TUNABLES",
      // GPUs
      "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "NCCL_ALGO", "NCCL_PROTO",
      "NCCL_NVLS_ENABLE",
      // parts of this program
      "LOCKSTEP_LAB", "LOCKSTEP_CUDA_MODULE", "LOCKSTEP_NCCL_MODULE"};
  for (const char* const variable : variables)
    if (const char* const value = std::getenv(variable)) all.emplace_back(variable, value);
  return all;
}

}  // namespace lockstep
