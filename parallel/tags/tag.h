// How a tensor on one rank relates to its counterparts on the other ranks along each axis:
//
//   replicated   every rank has the same numbers
//   rows         every rank has different rows (varying)
//   columns      every rank has different columns, or heads (varying)
//   partial      the tensor's value is the sum over the ranks: a reduction is still due
//
// The rules here give the tags of an operation's result, axis by axis. An empty result means that
// the operation is wrong for these operands. The idea is that of spmd_types (Meta, 2025), which has
// one kind of varying.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class Along : std::uint8_t {
  nothing,  // zeros, or numbers of which nothing is known
  replicated,
  rows,
  columns,
  partial,
};
std::string_view name_of(Along along);

struct Tag {
  static constexpr std::size_t most_axes = 12;
  std::array<Along, most_axes> along{};
  int parameter = -1;        // the parameter whose gradient this tensor contributes to
  const char* made_by = "";  // the operation

  Along& operator[](std::size_t axis) { return along[axis]; }
  Along operator[](std::size_t axis) const { return along[axis]; }
};

// a + b. Nothing else may be added to a partial sum: each rank would add it.
constexpr std::optional<Along> sum_of(Along a, Along b) {
  if (a == Along::nothing || a == b) return b;
  if (b == Along::nothing) return a;
  if (a == Along::partial || b == Along::partial) return {};
  if (a == Along::replicated) return b;
  if (b == Along::replicated) return a;
  return {};
}

// a * b, element by element. Linear in each: one of them may be partial if the other one is
// replicated.
constexpr std::optional<Along> product_of(Along a, Along b) {
  if (a == Along::nothing || a == Along::replicated) return b;
  if (b == Along::nothing || b == Along::replicated) return a;
  if (a == b && a != Along::partial) return a;
  return {};
}

// The same tensor as its transpose.
constexpr Along transposed(Along a) {
  if (a == Along::rows) return Along::columns;
  return a == Along::columns ? Along::rows : a;
}

// a b: a sum over a's columns and b's rows. If ranks have different ones of these, each has a part
// of the sum. An unknown operand counts as one that fits.
constexpr std::optional<Along> gemm_of(Along a, Along b) {
  const bool a_same = a == Along::nothing || a == Along::replicated;
  const bool b_same = b == Along::nothing || b == Along::replicated;
  if (a_same && b_same) return a == Along::nothing ? b : a;
  if ((a == Along::columns && (b == Along::rows || b == Along::nothing)) ||
      (a == Along::nothing && b == Along::rows))
    return Along::partial;
  if (a_same && b != Along::rows) return b;
  if (b_same && a != Along::columns) return a;
  return {};
}

// The sum over the rows.
constexpr Along row_sum_of(Along a) { return a == Along::rows ? Along::partial : a; }

}  // namespace lockstep
