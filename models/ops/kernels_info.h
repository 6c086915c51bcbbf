// Which libraries multiply matrices on this machine, and with which kernels.
#pragma once

#include <string>

namespace lockstep {

std::string float_gemm_library();  // "oneDNN 2.6.3, avx512_core_bf16"
std::string bf16_gemm_library();
std::string double_gemm_library();  // "OpenBLAS 0.3.21 Haswell"

}  // namespace lockstep
