// Types of 16 bits: which they are, and conversions.
#pragma once

#include "collectives/base/slice.h"

namespace lockstep {

// Whether a type has 16 bits and is computed in f32.
inline bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
// The type of statistics of such data: means and sums of exponentials need more digits.
inline DType statistics_type(DType dtype) { return is_narrow(dtype) ? DType::f32 : dtype; }

// into = from, between floating-point types. In the host's memory by all threads of the caller,
// otherwise by the device that holds one of them.
void convert(Slice into, Slice from);

}  // namespace lockstep
