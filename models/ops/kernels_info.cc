#include "models/ops/kernels_info.h"

#include <cblas.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include "models/ops/bf16_gemm.h"

namespace lockstep {
namespace {

std::string instruction_set() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2 with VNNI";
    case dnnl_cpu_isa_avx512_core:
      return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "AVX-512 with bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "AVX-512 with AMX";
    default:
      return "an unknown kernel";
  }
}

}  // namespace

std::string float_gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch,
                     instruction_set());
}

std::string bf16_gemm_library() {
  return host::has_bf16_gemm() ? float_gemm_library() : "in f32: no instructions for it here";
}

std::string double_gemm_library() {
  return fmt::format("{}, kernels for {}", openblas_get_config(), openblas_get_corename());
}

}  // namespace lockstep
