// Attention to parts of the keys, merged, and its backward, against attention to all of them.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "models/backend.h"
#include "models/data/token_layout.h"
#include "tests/models/layouts.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

constexpr Count sequences = 2, length = 144, heads = 4, head_size = 8;
constexpr double infinity = std::numeric_limits<double>::infinity();

// The rows of a matrix at those positions.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& all, const Positions& positions) {
  const Count width = std::ssize(all) / (sequences * length);
  std::vector<T> part;
  for (Count s = 0; s < sequences; ++s)
    for (Count i = 0; i < positions.count(); ++i) {
      const auto row = all.begin() + (s * length + positions[i]) * width;
      part.insert(part.end(), row, row + width);
    }
  return part;
}

// The same for statistics [sequences, heads, length].
template <typename T>
std::vector<T> columns_of(const std::vector<T>& all, const Positions& positions) {
  std::vector<T> part;
  for (Count row = 0; row < sequences * heads; ++row)
    for (Count i = 0; i < positions.count(); ++i)
      part.push_back(all[static_cast<std::size_t>(row * length + positions[i])]);
  return part;
}

// Attention to all keys at once, which other tests compare with its formula.
template <typename T>
struct Whole {
  AttentionShape shape;
  Dropout dropout;
  std::vector<T> qkv, out, log_sum_exp, dout, dqkv;

  Whole(Count kv_heads, const Dropout& d)
      : shape{sequences, length, heads, head_size, kv_heads},
        dropout(d),
        qkv(as<T>(normals(sequences * length * shape.qkv_width(), 1))),
        out(static_cast<std::size_t>(sequences * length * shape.width())),
        log_sum_exp(static_cast<std::size_t>(sequences * length * heads)),
        dout(as<T>(normals(std::ssize(out), 2))),
        dqkv(qkv.size()) {
    host_backend().attention(slice(out), slice(log_sum_exp), slice(qkv), shape, dropout);
    host_backend().attention_backward(slice(dqkv), slice(dout), slice(out), slice(log_sum_exp),
                                      slice(qkv), shape, dropout);
  }

  AttentionPart part(const Positions& queries, const Positions& keys) const {
    return {sequences, heads, head_size, shape.kv_heads, queries, keys, length};
  }
};

// Queries, keys and values, or their gradients, as columns of the rows of some positions.
template <typename T>
struct Columns {
  AttentionShape shape;
  std::vector<T> memory;

  Matrix part(Count first, Count count) {
    const Count rows = std::ssize(memory) / shape.qkv_width();
    return Matrix(slice(memory), rows, shape.qkv_width()).columns_from(first, count);
  }
  Matrix q() { return part(0, shape.width()); }
  Matrix k() { return part(shape.width(), shape.kv_width()); }
  Matrix v() { return part(shape.width() + shape.kv_width(), shape.kv_width()); }
};

template <typename T>
Columns<T> columns_at(const Whole<T>& whole, const Positions& positions) {
  return {whole.shape, rows_of(whole.qkv, positions)};
}

// out and log_sum_exp of some queries, merged over all ranks' keys, and the number of pairs.
template <typename T>
struct Merged {
  std::vector<T> out, log_sum_exp;
  Count pairs = 0;
};

template <typename T>
Merged<T> merged(const Whole<T>& whole, const TokenLayout& own, TokenLayout of_keys) {
  const Positions queries = own.positions(length);
  Columns<T> mine = columns_at(whole, queries);
  const auto rows = static_cast<std::size_t>(sequences * queries.count());
  Merged<T> result{std::vector<T>(rows * heads * head_size, std::numeric_limits<T>::quiet_NaN()),
                   std::vector<T>(rows * heads, -std::numeric_limits<T>::infinity())};
  for (int step = 0; step < of_keys.ranks; ++step) {
    of_keys.rank = (own.rank + of_keys.ranks - step) % of_keys.ranks;
    const AttentionPart part = whole.part(queries, of_keys.positions(length));
    Columns<T> theirs = columns_at(whole, part.keys);
    std::vector<T> out(result.out.size(), T{99}), log_sum_exp(result.log_sum_exp.size(), T{99});
    host_backend().attention_part(slice(out), slice(log_sum_exp), mine.q(), theirs.k(), theirs.v(),
                                  part, whole.dropout);
    host_backend().merge_attention(slice(result.out), slice(result.log_sum_exp), slice(out),
                                   slice(log_sum_exp), part);
    result.pairs += causal_pairs(part.queries, part.keys);
  }
  return result;
}

const std::vector<std::pair<Count, Dropout>> calls = {{4, Dropout{}}, {2, some_dropped}};

// Calls check(layout of queries, layout of keys) for every rank of queries.
template <typename Check>
void for_layouts(Check check) {
  for (const TokenOrder of_queries : split_orders)
    for (const TokenOrder of_keys : split_orders)
      for (int ranks = 1; ranks <= 4; ++ranks) {
        if (of_keys != of_queries && ranks != 3) continue;
        SCOPED_TRACE(testing::Message() << "orders " << static_cast<int>(of_queries) << " and "
                                        << static_cast<int>(of_keys) << ", ranks " << ranks);
        for (int rank = 0; rank < ranks; ++rank)
          check(TokenLayout{of_queries, ranks, rank}, TokenLayout{of_keys, ranks, 0});
      }
}

template <typename T>
void expect_parts_are_the_whole(double tolerance) {
  for (const auto& [kv_heads, dropout] : calls) {
    const Whole<T> whole(kv_heads, dropout);
    Count pairs = 0;
    for_layouts([&](const TokenLayout& own, const TokenLayout& of_keys) {
      if (own.rank == 0) pairs = 0;
      const Positions queries = own.positions(length);
      const Merged<T> result = merged(whole, own, of_keys);
      expect_near(result.out, rows_of(whole.out, queries), tolerance);
      expect_near(result.log_sum_exp, columns_of(whole.log_sum_exp, queries), tolerance);
      pairs += result.pairs;
      if (own.rank == own.ranks - 1) {
        EXPECT_EQ(pairs, length * (length + 1) / 2);
      }
    });
  }
}

TEST(AttentionParts, MergeIntoTheWhole) { expect_parts_are_the_whole<double>(1e-12); }
TEST(AttentionParts, MergeIntoTheWholeInFloat) { expect_parts_are_the_whole<float>(1e-5); }

// Every rank's queries with every rank's keys. Gradients of queries add up on their rank, those of
// keys and values after they have travelled around the ring.
template <typename T>
void expect_gradients_of_parts_are_the_whole(double tolerance) {
  for (const auto& [kv_heads, dropout] : calls) {
    Whole<T> whole(kv_heads, dropout);
    std::vector<Columns<T>> gradients;
    for_layouts([&](const TokenLayout& own, TokenLayout of_keys) {
      const auto positions_of = [&](int rank) {
        of_keys.rank = rank;
        return of_keys.positions(length);
      };
      if (own.rank == 0) {
        gradients.clear();
        for (int rank = 0; rank < own.ranks; ++rank) {
          gradients.push_back(columns_at(whole, positions_of(rank)));
          gradients.back().memory.assign(gradients.back().memory.size(), T{0});
        }
      }
      const Positions queries = own.positions(length);
      Columns<T> mine = columns_at(whole, queries), dmine = mine;
      dmine.memory.assign(mine.memory.size(), T{0});
      auto dout = rows_of(whole.dout, queries), out = rows_of(whole.out, queries),
           log_sum_exp = columns_of(whole.log_sum_exp, queries);
      std::vector<T> products(log_sum_exp.size());
      host_backend().attention_products(slice(products), slice(dout), slice(out),
                                        whole.part(queries, queries));
      for (int rank = 0; rank < own.ranks; ++rank) {
        Columns<T> theirs = columns_at(whole, positions_of(rank));
        Columns<T>& dtheirs = gradients[static_cast<std::size_t>(rank)];
        host_backend().attention_part_backward(
            dmine.q(), dtheirs.k(), dtheirs.v(), slice(dout), slice(log_sum_exp), slice(products),
            mine.q(), theirs.k(), theirs.v(), whole.part(queries, positions_of(rank)), dropout);
      }
      // Nothing but dq was written to the matrix.
      auto expected = rows_of(whole.dqkv, queries);
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (static_cast<Count>(i) % whole.shape.qkv_width() >= whole.shape.width()) expected[i] = 0;
      expect_near(dmine.memory, expected, tolerance);
      if (own.rank < own.ranks - 1) return;
      for (int rank = 0; rank < own.ranks; ++rank) {
        expected = rows_of(whole.dqkv, positions_of(rank));
        for (std::size_t i = 0; i < expected.size(); ++i)
          if (static_cast<Count>(i) % whole.shape.qkv_width() < whole.shape.width())
            expected[i] = 0;
        expect_near(gradients[static_cast<std::size_t>(rank)].memory, expected, tolerance);
      }
    });
  }
}

TEST(AttentionParts, GradientsAddUpToTheWhole) {
  expect_gradients_of_parts_are_the_whole<double>(1e-12);
}
TEST(AttentionParts, GradientsAddUpToTheWholeInFloat) {
  expect_gradients_of_parts_are_the_whole<float>(1e-5);
}

// Queries before all keys: results that are added to do not change.
TEST(AttentionParts, WithoutAPairAreEmpty) {
  const Whole<double> whole(2, {});
  const AttentionPart part =
      whole.part(TokenLayout{TokenOrder::contiguous, 2, 0}.positions(length),
                 TokenLayout{TokenOrder::contiguous, 2, 1}.positions(length));
  Columns<double> mine = columns_at(whole, part.queries), theirs = columns_at(whole, part.keys),
                  dmine = mine, dtheirs = theirs;
  auto out = rows_of(whole.out, part.queries),
       log_sum_exp = columns_of(whole.log_sum_exp, part.queries);
  auto merged_out = out, merged_log_sum_exp = log_sum_exp;
  host_backend().attention_part_backward(dmine.q(), dtheirs.k(), dtheirs.v(), slice(out),
                                         slice(log_sum_exp), slice(log_sum_exp), mine.q(),
                                         theirs.k(), theirs.v(), part, {});
  EXPECT_EQ(dmine.memory, mine.memory);
  EXPECT_EQ(dtheirs.memory, theirs.memory);
  host_backend().attention_part(slice(out), slice(log_sum_exp), mine.q(), theirs.k(), theirs.v(),
                                part, {});
  EXPECT_EQ(out, std::vector<double>(out.size()));
  EXPECT_EQ(log_sum_exp, std::vector<double>(log_sum_exp.size(), -infinity));
  const auto before = merged_out, before_log_sum_exp = merged_log_sum_exp;
  host_backend().merge_attention(slice(merged_out), slice(merged_log_sum_exp), slice(out),
                                 slice(log_sum_exp), part);
  EXPECT_EQ(merged_out, before);
  EXPECT_EQ(merged_log_sum_exp, before_log_sum_exp);
}

// exp(l) alone would be 0 or infinite.
TEST(AttentionParts, MergeWithoutOverflow) {
  const AttentionPart part{1, 1, 1, 1, Positions::all(5), Positions::all(5), 5};
  std::vector<double> out = {1, 1, 1, 1, 1}, l = {2000, -2000, 1e4, -1e4, 800},
                      other = {3, 3, 3, 3, 3},
                      other_l = {2000, -2000, -1e4, 1e4, 800 + std::log(3)};
  host_backend().merge_attention(slice(out), slice(l), slice(other), slice(other_l), part);
  expect_near(out, std::vector{2.0, 2.0, 1.0, 3.0, 2.5}, 1e-12);
  expect_near(l, std::vector{2000 + std::log(2), -2000 + std::log(2), 1e4, 1e4, 800 + std::log(4)},
              1e-12);
}

TEST(AttentionParts, BitsDoNotDependOnTheThreads) {
  const Whole<float> whole(2, some_dropped);
  const TokenLayout own{TokenOrder::zig_zag, 2, 1};
  omp_set_num_threads(1);
  const auto one = merged(whole, own, own);
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    const auto more = merged(whole, own, own);
    EXPECT_EQ(one.out, more.out);
    EXPECT_EQ(one.log_sum_exp, more.log_sum_exp);
  }
  omp_set_num_threads(1);
}

}  // namespace
}  // namespace lockstep
