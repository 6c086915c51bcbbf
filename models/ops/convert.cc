// Converts between f32 and the 16-bit types, in vectors.
#include "models/ops/convert.h"

namespace lockstep::host {

void widen(float* into, const BFloat16* from, Count count) {
  for (Count i = 0; i < count; ++i) into[i] = to_float(from[i]);
}
void widen(float* into, const Half* from, Count count) {
  for (Count i = 0; i < count; ++i) into[i] = to_float(from[i]);
}
void narrow(BFloat16* into, const float* from, Count count) {
  for (Count i = 0; i < count; ++i) into[i] = bfloat16_from_float(from[i]);
}
void narrow(Half* into, const float* from, Count count) {
  for (Count i = 0; i < count; ++i) into[i] = half_from_float(from[i]);
}

}  // namespace lockstep::host
