// Numbers in fewer bits for the wire.
//
//                bytes of n numbers     what stays of each
//   onebit       n/8 + 4                its sign; all become plus or minus their root mean square
//   sign         n/8                    its sign; all become 1 or -1
//   int8         n + 4 ceil(n/256)      127 steps on either side of zero, up to the largest of 256
//   int4         n/2 + 4 ceil(n/256)    7 steps
//   mxfp8        n + ceil(n/32)         e4m3, times a power of two for each 32
//
// A zero counts as positive where only signs stay. Rounding is to nearest, ties to even. A number that is
// not finite makes all numbers NaN that share its scale, so that the norm shows it; `sign`, which has no
// scale, throws. Seide et al., "1-bit stochastic gradient descent", 2014; Bernstein et al., "signSGD", 2018; Open Compute Project,
// "Microscaling formats (MX)", 2023.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

template <typename T>
class Codec {
 public:
  virtual ~Codec() = default;
  // Of so many numbers that are encoded together.
  virtual Count bytes(Count count) const = 0;
  // What all numbers that a rank encodes for one exchange have in common.
  virtual double scale(std::span<const T>) const { return 1; }
  // Writes bytes(x.size()) bytes.
  virtual void encode(std::span<const T> x, double scale, std::byte* out) const = 0;
  virtual void decode(const std::byte* in, std::span<T> x) const = 0;
};

// For f32 and f64. `name` is one of the table.
template <typename T>
std::unique_ptr<Codec<T>> make_codec(std::string_view name);
// Codec::bytes() of that codec.
Count encoded_bytes(std::string_view name, Count count);

}  // namespace lockstep
