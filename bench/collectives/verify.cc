#include "bench/collectives/verify.h"

#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/base/float8.h"
#include "collectives/base/half.h"
#include "collectives/base/with_type.h"

namespace lockstep {
namespace {

// Numbers are 1 to 11, which repeat along the index, so only a few results need computing.
constexpr Count period = 11;

// What the inputs are chosen for.
struct InputRule {
  ReduceOp op;
  int round;
  bool is_scaled = false;
  // Where sums of all ranks' numbers would not be exact, only one rank in `every` gives a number
  // other than 0 (in products, 1) for an index; the next one for the next index.
  Count every = 1;
  bool is_tiny = false;  // numbers from -2 to 2

  Count repeats_after() const { return period * every; }
};

int input(int rank, Count index, const InputRule& rule) {
  const bool is_product = rule.op == ReduceOp::prod;
  if ((rank + index + rule.round) % rule.every != 0) return is_product ? 1 : 0;
  if (is_product) return 1 + static_cast<int>((rank * 7 + index * 3) % period + rule.round) % 2;
  const int number = static_cast<int>((rank * 7 + index * 3 + rule.round) % period);
  if (!rule.is_tiny) return 1 + number;
  // Odd ranks may multiply them by 2.
  const int size = rank % 2 == 0 ? 1 + number / 2 % 2 : 1;
  return number % 2 == 0 ? size : -size;
}

// How a type stores small integers and combines them.
template <typename T>
struct Number {
  using Wide = T;
  static T store(T value) { return value; }
};
template <>
struct Number<Half> {
  using Wide = float;
  static Half store(float value) { return half_from_float(value); }
};
template <>
struct Number<BFloat16> {
  using Wide = float;
  static BFloat16 store(float value) { return bfloat16_from_float(value); }
};
template <int mantissa, int bias, std::uint32_t most>
struct Number<Float8<mantissa, bias, most>> {
  using Wide = float;
  using Narrow = Float8<mantissa, bias, most>;
  static Narrow store(float value) { return float8_from_float<Narrow>(value); }
};

// How many ranks' numbers have an exact sum in any order, even if each is multiplied.
Count exact_terms(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 2048 / (2 * period);
    case DType::bf16:
      return 256 / (2 * period);
    case DType::f8e4m3:
    case DType::f8e5m2:  // whole numbers up to 8 are exact
      return 8 / 2;
    default:
      return std::numeric_limits<int>::max();
  }
}

InputRule rule_for(const OperationEntry& entry, DType dtype, int ranks, ReduceOp op, int round) {
  const bool combines =
      entry.reduces && (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::prod);
  if (!combines) return {.op = op, .round = round};
  const Count terms = exact_terms(dtype);
  return {.op = op,
          .round = round,
          .every = (ranks + terms - 1) / terms,
          .is_tiny = element_bytes(dtype) == 1 && is_floating(dtype)};
}

// Integers wrap around, as in sums.
template <typename T>
T times(T value, int factor) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(factor));
  else if constexpr (std::is_floating_point_v<T>)
    return value * static_cast<T>(factor);
  else
    return Number<T>::store(to_float(value) * static_cast<float>(factor));
}

template <typename T>
using Table = std::vector<T>;

template <typename T>
Table<T> inputs_of(int rank, const InputRule& rule) {
  Table<T> table(static_cast<std::size_t>(rule.repeats_after()));
  for (Count i = 0; i < rule.repeats_after(); ++i)
    table[i] = Number<T>::store(static_cast<typename Number<T>::Wide>(input(rank, i, rule)));
  return table;
}

template <typename T>
Table<T> combined(int ranks, const InputRule& rule) {
  const ReduceOp op = rule.op;
  using Wide = typename Number<T>::Wide;
  Table<T> table(static_cast<std::size_t>(rule.repeats_after()));
  for (Count i = 0; i < rule.repeats_after(); ++i) {
    const auto scaled = [&](int rank) {
      return static_cast<Wide>(input(rank, i, rule) * (rule.is_scaled ? input_factor(rank) : 1));
    };
    Wide value = scaled(0);
    for (int rank = 1; rank < ranks; ++rank) {
      const Wide other = scaled(rank);
      if (op == ReduceOp::sum || op == ReduceOp::avg) value = static_cast<Wide>(value + other);
      if (op == ReduceOp::prod) value = static_cast<Wide>(value * other);
      if (op == ReduceOp::min) value = std::min(value, other);
      if (op == ReduceOp::max) value = std::max(value, other);
    }
    if (op == ReduceOp::avg) value = static_cast<Wide>(value / static_cast<Wide>(ranks));
    table[i] = Number<T>::store(value);
  }
  return table;
}

// The number of elements begin .. begin + count - 1 that differ from the table's, starting at index
// `from` of the table.
template <typename T>
Count unlike(Slice result, Count begin, Count count, const Table<T>& table, Count from) {
  const T* const values = reinterpret_cast<const T*>(result.data) + begin;
  const Count repeats_after = std::ssize(table);
  Count wrong = 0;
  for (Count i = 0; i < count; ++i)
    wrong += std::memcmp(&values[i], &table[(from + i) % repeats_after], sizeof(T)) != 0;
  return wrong;
}

template <typename T>
Count wrong_typed(Slice result, Operation operation, const Problem& x, int rank,
                  const InputRule& rule) {
  const Parts part(x.count, x.ranks);
  const Count own = part.offset(rank);
  const auto whole = [&](const Table<T>& table) { return unlike<T>(result, 0, x.count, table, 0); };
  const auto chunk_of_each = [&] {
    Count wrong = 0;
    for (int owner = 0; owner < x.ranks; ++owner)
      wrong += unlike<T>(result, part.offset(owner), part[owner], inputs_of<T>(owner, rule),
                         part.offset(owner));
    return wrong;
  };
  switch (operation) {
    case Operation::all_reduce:
      return whole(combined<T>(x.ranks, rule));
    case Operation::reduce:
      return rank == x.root ? whole(combined<T>(x.ranks, rule)) : 0;
    case Operation::reduce_scatter:
      return unlike<T>(result, own, part[rank], combined<T>(x.ranks, rule), own);
    case Operation::broadcast:
      return whole(inputs_of<T>(x.root, rule));
    case Operation::scatter:
      return unlike<T>(result, own, part[rank], inputs_of<T>(x.root, rule), own);
    case Operation::all_gather:
      return chunk_of_each();
    case Operation::gather:
      return rank == x.root ? chunk_of_each() : 0;
    case Operation::all_to_all: {
      Count wrong = 0;
      for (int owner = 0; owner < x.ranks; ++owner)
        wrong += unlike<T>(result, part.offset(owner), part[owner], inputs_of<T>(owner, rule), own);
      return wrong;
    }
    case Operation::all_to_all_v: {
      Count wrong = 0, begin = 0;
      for (int owner = 0; owner < x.ranks; ++owner) {
        Count from = 0;  // where this rank's chunk begins in the owner's input
        for (int other = 0; other < rank; ++other) from += pair_count(x, owner, other);
        const Count count = pair_count(x, owner, rank);
        wrong += unlike<T>(result, begin, count, inputs_of<T>(owner, rule), from);
        begin += count;
      }
      return wrong;
    }
    case Operation::send_recv:
      return whole(inputs_of<T>((rank + x.ranks - 1) % x.ranks, rule));
    case Operation::barrier:
      return 0;
  }
  return 0;
}

bool brings_a_chunk(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::gather;
}

}  // namespace

int input_factor(int rank) { return 1 + rank % 2; }

void multiply(Slice into, Slice from, int factor) {
  with_type(into.dtype, [&]<typename T>(T) {
    const std::span<T> out = host_span<T>(into), in = host_span<T>(from);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = times(in[i], factor);
  });
}

void fill_input(Slice data, const OperationEntry& entry, const Problem& x, int rank, ReduceOp op,
                int round) {
  with_type(data.dtype, [&]<typename T>(T) {
    const InputRule rule = rule_for(entry, data.dtype, x.ranks, op, round);
    const Table<T> table = inputs_of<T>(rank, rule);
    T* const values = reinterpret_cast<T*>(data.data);
    const Parts part(x.count, x.ranks);
    const bool chunk = brings_a_chunk(entry.operation);
    const Count begin = chunk ? part.offset(rank) : 0,
                end = chunk ? part.offset(rank + 1) : data.count;
    if (chunk) std::memset(data.data, 0, static_cast<std::size_t>(data.bytes()));
    for (Count i = begin; i < end; ++i) values[i] = table[i % rule.repeats_after()];
  });
}

Count wrong_elements(Slice result, const OperationEntry& entry, const Problem& x, int rank,
                     ReduceOp op, int round, bool is_scaled) {
  if (rank >= x.ranks) return 0;  // it receives nothing
  InputRule rule = rule_for(entry, result.dtype, x.ranks, op, round);
  rule.is_scaled = is_scaled;
  Count wrong = 0;
  with_type(result.dtype,
            [&]<typename T>(T) { wrong = wrong_typed<T>(result, entry.operation, x, rank, rule); });
  return wrong;
}

}  // namespace lockstep
