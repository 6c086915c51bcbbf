// Matrix products of bf16, summed in f32, with the processor's bf16 instructions.
#pragma once

#include "models/backend.h"

namespace lockstep::host {

// Whether this processor (AVX512-BF16 or AMX) and the library support them. Otherwise products use
// widened copies.
bool has_bf16_gemm();

// c = a b + beta c, with beta 0 or 1; a and b of bf16, c of bf16 or f32. Requires has_bf16_gemm().
void bf16_gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta);

}  // namespace lockstep::host
