// Element types and reductions, with their names on the command line, in JSON and in errors.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// A number of elements. Signed, so that differences are correct.
using Count = std::int64_t;

enum class DType : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, f8e4m3, f8e5m2 };
inline constexpr DType all_dtypes[] = {DType::f16, DType::bf16, DType::f32,    DType::f64,
                                       DType::i8,  DType::u8,   DType::i32,    DType::u32,
                                       DType::i64, DType::u64,  DType::f8e4m3, DType::f8e5m2};

// `avg` is the sum divided by the number of ranks, rounded once at the end.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };
inline constexpr ReduceOp all_reduce_ops[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                              ReduceOp::max, ReduceOp::avg};

// Bytes of one element.
Count element_bytes(DType dtype);

bool is_floating(DType dtype);
// Floating types that models compute in: not those of 8 bits, which collectives only move and reduce.
bool is_trainable(DType dtype);
std::string_view name_of(DType dtype);
std::string_view name_of(ReduceOp op);

// The value with that name. Throws Error (bad_input) that lists the known names.
DType dtype_from_name(std::string_view name);
ReduceOp reduce_op_from_name(std::string_view name);

// The element type of a C++ type.
template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<std::int8_t>() {
  return DType::i8;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::uint32_t>() {
  return DType::u32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<std::uint64_t>() {
  return DType::u64;
}

}  // namespace lockstep
