// Documents packed into sequences: where they begin, their pairs of queries and keys, the order that
// balances ranks, and the batches cut from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "models/data/dataset.h"
#include "models/data/documents.h"
#include "models/ops/roofline_backend.h"
#include "tests/models/files.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

// Documents of 3, 2, 5 and 2 tokens in two sequences of 6 tokens: the third crosses a border.
TEST(Documents, BeginAtTheirFirstTokensAndAtThatOfTheSequence) {
  const std::vector<Count> begins = {0, 3, 5, 10};
  std::vector<Count> found;
  for (Count sequence = 0; sequence < 2; ++sequence)
    for (Count position = 0; position < 6; ++position)
      found.push_back(document_begin(begins, 6, sequence, position));
  EXPECT_EQ(found, (std::vector<Count>{0, 0, 0, 3, 3, 5, 0, 0, 0, 0, 4, 4}));
  const Positions all = Positions::all(6);
  EXPECT_EQ(causal_pairs(all, all, begins, 6, 2), 6 + 3 + 1 + 10 + 3);
}

// A simulated device takes time for the pairs that it computes.
TEST(Documents, TakeTheTimeOfTheirPairs) {
  const std::vector<Count> begins = {0, 3, 5, 10};
  double seconds = 0;
  RooflineBackend backend({.flops_per_s = 1, .bytes_per_s = 1e30},
                          [&](double more) { seconds += more; });
  AttentionShape shape{2, 6, 4, 8, 2};
  shape.documents = begins;
  std::vector<double> qkv(static_cast<std::size_t>(12 * shape.qkv_width())), out(12 * 32), l(48);
  backend.attention(slice(out), slice(l), slice(qkv), shape, {});
  EXPECT_EQ(seconds, 2 * 2 * 8 * 4 * 23);
}

constexpr TokenOrder token_orders[] = {TokenOrder::contiguous, TokenOrder::zig_zag,
                                       TokenOrder::striped};

// Lengths that add up to `length`.
std::vector<Count> random_lengths(Count length, std::mt19937& random) {
  std::vector<Count> lengths;
  for (Count left = length; left > 0; left -= lengths.back())
    lengths.push_back(std::min<Count>(left, 1 + static_cast<Count>(random() % (length / 3))));
  return lengths;
}

TEST(Documents, PairsOfRanksAreThoseOfTheirPositions) {
  constexpr Count length = 48;
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::vector<Count> lengths = random_lengths(length, random);
    std::vector<Count> begins(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), Count{0});
    Count expected_sum = 0;
    for (const Count n : lengths) expected_sum += n * (n + 1) / 2;
    for (const TokenOrder order : token_orders)
      for (const int ranks : {1, 2, 3, 4}) {
        const std::vector<Count> pairs = pairs_of_ranks(lengths, order, ranks);
        for (int rank = 0; rank < ranks; ++rank)
          ASSERT_EQ(pairs[rank],
                    causal_pairs(TokenLayout{.order = order, .ranks = ranks, .rank = rank}
                                     .positions_of_group(length),
                                 Positions::all(length), begins, length, 1));
        ASSERT_EQ(std::accumulate(pairs.begin(), pairs.end(), Count{0}), expected_sum);
      }
  }
}

// The pairs of all sequences, in these orders of their documents.
Count busiest_of(const std::vector<std::vector<Count>>& sequences,
                 const std::vector<std::vector<int>>& orders, int ranks) {
  std::vector<Count> sum(static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<Count> packed;
    for (const int document : orders[s]) packed.push_back(sequences[s][document]);
    const std::vector<Count> pairs = pairs_of_ranks(packed, TokenOrder::striped, ranks);
    for (int rank = 0; rank < ranks; ++rank) sum[rank] += pairs[rank];
  }
  return std::ranges::max(sum);
}

TEST(Documents, BalancedOrdersAreNeverWorseAndMostlyBetter) {
  std::mt19937 random(2);
  constexpr int rounds = 100;
  int better = 0;
  for (int round = 0; round < rounds; ++round) {
    const int ranks = 2 << (round % 2);
    std::vector<std::vector<Count>> sequences;
    std::vector<std::vector<int>> given;
    for (int s = 0; s < 1 + round % 3; ++s) {
      sequences.push_back(random_lengths(64, random));
      given.emplace_back(sequences.back().size());
      std::iota(given.back().begin(), given.back().end(), 0);
    }
    const auto orders = balanced_orders(sequences, ranks);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      std::vector<int> sorted = orders[s];
      std::ranges::sort(sorted);
      ASSERT_EQ(sorted, given[s]);
    }
    const Count before = busiest_of(sequences, given, ranks);
    const Count after = busiest_of(sequences, orders, ranks);
    ASSERT_LE(after, before);
    better += after < before;
  }
  EXPECT_GT(better, rounds / 2);
  // Both long documents have their later tokens at odd places.
  const std::vector<std::vector<Count>> one = {{1, 1, 1, 1, 4, 4, 1, 1, 1, 1}};
  EXPECT_EQ(pairs_of_ranks(one[0], TokenOrder::striped, 2), (std::vector<Count>{12, 16}));
  EXPECT_EQ(busiest_of(one, balanced_orders(one, 2), 2), 14);
  EXPECT_DOUBLE_EQ(imbalance(std::vector<Count>{8, 20}), 20 / 14.0);
}

using PackedFiles = Files;

TEST_F(PackedFiles, TargetsEndWithTheirDocuments) {
  // Documents: "ab\n\n", "c\n\n", "\n", "def".
  const Dataset data(write("text", "ab\n\nc\n\n\ndefghij"), 256, 0, true);
  const Sampling sampling{Order::sequential, 1, 12, 0};
  const Batch batch = data.batch(sampling, 0, 0, 1);
  EXPECT_EQ(batch.documents, (std::vector<Count>{0, 4, 7, 8}));
  EXPECT_EQ(batch.inputs, (std::vector<std::int32_t>{'a', 'b', '\n', '\n', 'c', '\n', '\n', '\n',
                                                     'd', 'e', 'f', 'g'}));
  EXPECT_EQ(batch.targets, (std::vector<std::int32_t>{'b', '\n', '\n', -1, '\n', '\n', -1, -1, 'e',
                                                      'f', 'g', 'h'}));
  EXPECT_EQ(data.targets(sampling, 0), 9);
  EXPECT_EQ(data.document_lengths(sampling, 0, 0), (std::vector<Count>{4, 3, 1, 4}));
  EXPECT_TRUE(batch.positions.empty());
  // The end of a sequence is not the end of its document, but may be.
  EXPECT_EQ(data.targets({Order::sequential, 4, 2, 0}, 0), 5);
  EXPECT_EQ(data.batch({Order::sequential, 4, 2, 0}, 0, 1, 1).targets,
            (std::vector<std::int32_t>{'\n', -1}));
  EXPECT_EQ(Dataset(write("text", "ab\n\ncd"), 256, 0)
                .batch({Order::sequential, 1, 4, 0}, 0, 0, 1)
                .targets.back(),
            'c');
  expect_refused([&] { Dataset(write("text", "ab\ncd\n"), 256, 0, true); },
                 "found no document boundary: no line is empty");
}

TEST_F(PackedFiles, ATokenFileHasATokenAtTheBeginningOfEachDocument) {
  const std::vector<std::uint16_t> tokens = {50256, 1, 2, 50256, 50256, 3, 4, 5};
  std::vector<std::int32_t> head = {20240520, 1, 8};
  head.resize(256);
  const auto file = [&](std::size_t first) {
    head[2] = static_cast<std::int32_t>(tokens.size() - first);
    return write("tokens", std::string(reinterpret_cast<const char*>(head.data()), 1024) +
                               std::string(reinterpret_cast<const char*>(tokens.data() + first),
                                           2 * (tokens.size() - first)));
  };
  const Batch batch = Dataset(file(0), 50257, 0, true).batch({Order::sequential, 1, 7, 0}, 0, 0, 1);
  EXPECT_EQ(batch.documents, (std::vector<Count>{0, 3, 4}));
  EXPECT_EQ(batch.targets, (std::vector<std::int32_t>{1, 2, -1, -1, 3, 4, 5}));
  expect_refused([&] { Dataset(file(5), 50257, 0, true); }, "there is no token 50256");
}

// Together the ranks have each token of a sequence once, with its own target and position.
TEST_F(PackedFiles, ABalancedLayoutOnlyMovesDocuments) {
  std::string text;
  std::mt19937 random(3);
  while (text.size() < 200) {
    text.append(1 + random() % 17, static_cast<char>('a' + random() % 26));
    text += "\n\n";
  }
  const Dataset data(write("text", text), 256, 0, true);
  const Sampling sampling{Order::sequential, 2, 64, 0};
  const Batch whole = data.batch(sampling, 0, 0, 2);
  std::vector<std::array<std::int32_t, 3>> expected, got;
  for (std::int32_t i = 0; i < 128; ++i) expected.push_back({i, whole.inputs[i], whole.targets[i]});
  bool moved = false;
  for (int rank = 0; rank < 4; ++rank) {
    const TokenLayout layout{
        .order = TokenOrder::striped, .ranks = 4, .rank = rank, .balanced = true};
    const Batch batch = data.batch(sampling, 0, 0, 2, layout);
    ASSERT_EQ(batch.positions.size(), 32U);
    EXPECT_EQ(batch.documents.size(), whole.documents.size());
    for (std::int32_t i = 0; i < 32; ++i) {
      got.push_back({i / 16 * 64 + batch.positions[i], batch.inputs[i], batch.targets[i]});
      moved = moved || batch.positions[i] != layout.positions(64)[i % 16];
    }
  }
  EXPECT_TRUE(moved);
  std::ranges::sort(got);
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace lockstep
