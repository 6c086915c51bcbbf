// Maps our types and reductions to gloo's.
#pragma once

#include <fmt/format.h>
#include <gloo/math.h>

#include <cstddef>
#include <type_traits>

#include "collectives/base/error.h"
#include "collectives/base/with_type.h"

namespace lockstep {

using GlooReduction = void (*)(void*, const void*, const void*, std::size_t);

// An average starts as a sum.
template <typename T>
GlooReduction gloo_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return &gloo::product<T>;
    case ReduceOp::min:
      return &gloo::min<T>;
    case ReduceOp::max:
      return &gloo::max<T>;
    default:
      return &gloo::sum<T>;
  }
}

// Calls `use` with a value of gloo's type. Throws Error (bad_input) for types that gloo lacks.
template <typename Use>
void with_gloo_type(DType dtype, Use use) {
  with_type(dtype, [&]<typename T>(T value) {
    if constexpr (std::is_same_v<T, Half>)
      use(gloo::float16{});
    else if constexpr (std::is_arithmetic_v<T>)
      use(value);
    else
      require(false, fmt::format("gloo does not reduce {}", name_of(dtype)),
              "choose another type or the ring");
  });
}

}  // namespace lockstep
