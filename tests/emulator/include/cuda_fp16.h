// f16 with CUDA's names.
#pragma once

#include <cuda_runtime.h>

#include "collectives/base/half.h"

// NOLINTBEGIN: the names are CUDA's.
struct __half {
  std::uint16_t bits;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half x) { return lockstep::to_float(lockstep::Half{x.bits}); }
inline __half __float2half_rn(float x) { return {lockstep::half_from_float(x).bits}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
// NOLINTEND
