// bf16 with CUDA's names.
#pragma once

#include <cuda_runtime.h>

#include "collectives/base/half.h"

// NOLINTBEGIN: the names are CUDA's.
struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return lockstep::to_float(lockstep::BFloat16{x.bits});
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {lockstep::bfloat16_from_float(x).bits};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
// NOLINTEND
