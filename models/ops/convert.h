// Converts between f32 and the 16-bit types, rounding to nearest even as devices do.
#pragma once

#include "collectives/base/dtype.h"
#include "collectives/base/half.h"

namespace lockstep::host {

void widen(float* into, const BFloat16* from, Count count);
void widen(float* into, const Half* from, Count count);
void narrow(BFloat16* into, const float* from, Count count);
void narrow(Half* into, const float* from, Count count);

}  // namespace lockstep::host
