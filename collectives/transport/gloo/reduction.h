// Maps our types and reductions to gloo's.
#pragma once

#include <gloo/math.h>

#include <cstddef>
#include <cstdint>

#include "collectives/base/dtype.h"
#include "collectives/base/error.h"

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

// Calls `use` with a value of the type. Throws Error (bad_input) for bf16, which gloo lacks.
template <typename Use>
void with_gloo_type(DType dtype, Use use) {
  switch (dtype) {
    case DType::f32:
      return use(float{});
    case DType::f64:
      return use(double{});
    case DType::f16:
      return use(gloo::float16{});
    case DType::i8:
      return use(std::int8_t{});
    case DType::u8:
      return use(std::uint8_t{});
    case DType::i32:
      return use(std::int32_t{});
    case DType::u32:
      return use(std::uint32_t{});
    case DType::i64:
      return use(std::int64_t{});
    case DType::u64:
      return use(std::uint64_t{});
    case DType::bf16:
      break;
  }
  require(false, "gloo does not reduce bf16", "choose another type or the ring");
}

}  // namespace lockstep
