// Which elements dropout keeps, for kernels: a function of an element and its index that vectorises
// in loops and can be called on devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/backend.h"
#include "models/random.h"

namespace lockstep::host {

// For rate 0.
struct KeepAll {
  template <typename T>
  constexpr T operator()(T x, Count) const {
    return x;
  }
};

template <typename T>
class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& dropout)
      : key_(random_key(dropout.seed, dropout.stream)),
        dropped_below_(static_cast<std::uint64_t>(std::ldexp(dropout.rate, 64))),
        scale_(static_cast<T>(1 / (1 - dropout.rate))) {}

  constexpr bool drops(Count index) const { return random_bits(key_, index) < dropped_below_; }
  // The factor of elements that are kept.
  constexpr T scale() const { return scale_; }
  constexpr T operator()(T x, Count index) const { return drops(index) ? T{0} : x * scale_; }

 private:
  std::uint64_t key_, dropped_below_;
  T scale_;
};

// Calls function(mask) with the mask for that rate. Without dropout its loops cost nothing extra.
template <typename T, typename Function>
void with_mask(const Dropout& dropout, Function function) {
  if (dropout.rate > 0)
    function(DropoutMask<T>(dropout));
  else
    function(KeepAll{});
}

}  // namespace lockstep::host
