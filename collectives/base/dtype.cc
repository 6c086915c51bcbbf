#include "collectives/base/dtype.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

template <typename Values>
auto find_by_name(const Values& values, std::string_view name, std::string_view what) {
  std::string known;
  for (const auto value : values) {
    if (name_of(value) == name) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(value));
  }
  require(false, fmt::format("unknown {} '{}'", what, name),
          fmt::format("choose one of {}", known));
  return values[0];
}

}  // namespace

Count element_bytes(DType dtype) {
  switch (dtype) {
    case DType::i8:
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
  }
  return 0;
}

bool is_floating(DType dtype) {
  return is_trainable(dtype) || dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
}

bool is_trainable(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::i64:
      return "i64";
    case DType::u64:
      return "u64";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::f8e5m2:
      return "f8e5m2";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
  }
  return "unknown";
}

DType dtype_from_name(std::string_view name) { return find_by_name(all_dtypes, name, "type"); }

ReduceOp reduce_op_from_name(std::string_view name) {
  return find_by_name(all_reduce_ops, name, "reduction");
}

}  // namespace lockstep
