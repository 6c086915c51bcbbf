// From a type as a value to a type of C++: the only switch over all of them.
#pragma once

#include <cstdint>

#include "collectives/base/dtype.h"
#include "collectives/base/float8.h"
#include "collectives/base/half.h"

namespace lockstep {

// Calls function(T{}) with the C++ type of `dtype`.
template <typename Function>
void with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::f16:
      return function(Half{});
    case DType::bf16:
      return function(BFloat16{});
    case DType::f32:
      return function(float{});
    case DType::f64:
      return function(double{});
    case DType::i8:
      return function(std::int8_t{});
    case DType::u8:
      return function(std::uint8_t{});
    case DType::i32:
      return function(std::int32_t{});
    case DType::u32:
      return function(std::uint32_t{});
    case DType::i64:
      return function(std::int64_t{});
    case DType::u64:
      return function(std::uint64_t{});
    case DType::f8e4m3:
      return function(Float8E4M3{});
    case DType::f8e5m2:
      return function(Float8E5M2{});
  }
}

}  // namespace lockstep
