// Which tokens a rank has, and that position tables and dropout use the right places of its rows.
#include "models/data/token_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "collectives/base/error.h"
#include "models/backend.h"
#include "models/data/rows.h"
#include "tests/models/layouts.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<Count> listed(const Positions& positions) {
  std::vector<Count> list;
  for (Count i = 0; i < positions.count(); ++i) list.push_back(positions[i]);
  return list;
}

TEST(TokenLayout, IsAsItsHeaderSays) {
  const auto of = [](TokenOrder order, int rank) {
    return listed(TokenLayout{order, 2, rank}.positions(8));
  };
  EXPECT_THAT(listed(TokenLayout{}.positions(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(of(TokenOrder::contiguous, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(of(TokenOrder::contiguous, 1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(of(TokenOrder::zig_zag, 0), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(of(TokenOrder::zig_zag, 1), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(of(TokenOrder::striped, 0), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(of(TokenOrder::striped, 1), ElementsAre(1, 3, 5, 7));
}

TEST(TokenLayout, GivesEveryPositionToOneRankInIncreasingOrder) {
  for (const TokenOrder order : split_orders)
    for (int c = 1; c <= 5; ++c) {
      const Count length = 6 * c;
      std::multiset<Count> all;
      for (int rank = 0; rank < c; ++rank) {
        const auto list = listed(TokenLayout{order, c, rank}.positions(length));
        EXPECT_EQ(std::ssize(list), length / c);
        EXPECT_TRUE(std::ranges::is_sorted(list));
        all.insert(list.begin(), list.end());
      }
      EXPECT_EQ(std::vector(all.begin(), all.end()), listed(Positions::all(length)));
    }
}

TEST(TokenLayout, OfZigZagHasTheChunksFromBothEnds) {
  for (int c = 1; c <= 4; ++c)
    for (int r = 0; r < c; ++r) {
      const Positions p = TokenLayout{TokenOrder::zig_zag, c, r}.positions(6 * c);
      EXPECT_THAT(listed(p), ElementsAre(3 * r, 3 * r + 1, 3 * r + 2, 3 * (2 * c - 1 - r),
                                         3 * (2 * c - 1 - r) + 1, 3 * (2 * c - 1 - r) + 2));
    }
}

TEST(TokenLayout, RefusesLengthsThatDoNotDivide) {
  EXPECT_THROW((TokenLayout{TokenOrder::contiguous, 4, 0}.positions(10)), Error);
  EXPECT_THROW((TokenLayout{TokenOrder::striped, 4, 0}.positions(10)), Error);
  EXPECT_THROW((TokenLayout{TokenOrder::zig_zag, 2, 0}.positions(10)), Error);
  EXPECT_NO_THROW((TokenLayout{TokenOrder::contiguous, 2, 0}.positions(10)));
}

TEST(Positions, UpToCountsThem) {
  for (const TokenOrder order : split_orders)
    for (int rank = 0; rank < 3; ++rank) {
      const Positions p = TokenLayout{order, 3, rank}.positions(12);
      for (Count at = -1; at < 14; ++at)
        EXPECT_EQ(p.up_to(at), std::ranges::count_if(listed(p), [&](Count x) { return x <= at; }));
    }
}

// For n = s / c tokens per rank and chunks of e = n / 2.
TEST(Positions, PairsOfRanksAreTheClosedForms) {
  for (int c = 1; c <= 4; ++c) {
    const Count n = 6, e = 3, s = n * c;
    for (int r = 0; r < c; ++r) {
      const auto pairs = [&](TokenOrder order) {
        Count sum = 0;
        for (int other = 0; other < c; ++other)
          sum += causal_pairs(TokenLayout{order, c, r}.positions(s),
                              TokenLayout{order, c, other}.positions(s));
        return sum;
      };
      EXPECT_EQ(pairs(TokenOrder::contiguous), r * n * n + n * (n + 1) / 2);
      EXPECT_EQ(pairs(TokenOrder::zig_zag), e * e * (2 * c - 1) + e * (e + 1));
      EXPECT_EQ(pairs(TokenOrder::striped), c * n * (n - 1) / 2 + n * (r + 1));
    }
  }
  EXPECT_EQ(causal_pairs(TokenLayout{TokenOrder::contiguous, 2, 0}.positions(8),
                         TokenLayout{TokenOrder::contiguous, 2, 1}.positions(8)),
            0);
}

// Two sequences of 12 tokens on three ranks.
constexpr Count few_sequences = 2, short_length = 12, row_width = 5;
Rows rows_of_rank(TokenOrder order, int rank) {
  return {.sequences = few_sequences, .length = short_length / 3, .layout = {order, 3, rank}};
}

// This rank's rows of a tensor of all.
std::vector<double> cut(const std::vector<double>& all, const Rows& rows) {
  std::vector<double> part;
  for (Count s = 0; s < few_sequences; ++s)
    for (const Count position : listed(rows.positions())) {
      const auto row = all.begin() + (s * short_length + position) * row_width;
      part.insert(part.end(), row, row + row_width);
    }
  return part;
}

TEST(RowPlaces, OfRanksAddTheirPositions) {
  auto table = normals(short_length * row_width, 1),
       dout = normals(few_sequences * short_length * row_width, 2);
  std::vector<double> whole = dout, expected(table.size(), 1);
  const Rows all{.sequences = few_sequences, .length = short_length};
  host_backend().add_positions(slice(whole), slice(table), all.places(0), all.count());
  host_backend().positions_backward(slice(expected), slice(dout), all.places(0), all.count());
  for (const TokenOrder order : split_orders) {
    std::vector<double> gradient(table.size(), 1);
    for (int rank = 0; rank < 3; ++rank) {
      const Rows rows = rows_of_rank(order, rank);
      std::vector<double> out = cut(dout, rows), own = out;
      host_backend().add_positions(slice(out), slice(table), rows.places(0), rows.count());
      EXPECT_EQ(out, cut(whole, rows));
      host_backend().positions_backward(slice(gradient), slice(own), rows.places(0), rows.count());
    }
    expect_near(gradient, expected, 1e-15);
  }
}

// The same for the second half of a rank's rows, as if it were on another rank.
TEST(RowPlaces, OfRanksDropWhatOneRankDrops) {
  std::vector<double> ones(few_sequences * short_length * row_width, 1), whole(ones.size());
  Dropout dropout{.rate = 0.4, .seed = 3, .stream = 4, .first_row = 24};
  host_backend().dropout(slice(whole), slice(ones), few_sequences * short_length, dropout);
  for (const TokenOrder order : split_orders)
    for (int rank = 0; rank < 3; ++rank) {
      const Rows rows = rows_of_rank(order, rank);
      const auto expected = cut(whole, rows);
      for (const Count first : {Count{0}, rows.count() / 2}) {
        dropout.places = rows.places(first);
        std::vector<double> out(static_cast<std::size_t>((rows.count() - first) * row_width), 1);
        host_backend().dropout(slice(out), slice(out), rows.count() - first, dropout);
        EXPECT_EQ(out, std::vector(expected.begin() + first * row_width, expected.end()));
        std::vector<double> sum(out.size()), base(out.size(), 0), bias(row_width, 0),
            x(out.size(), 1);
        host_backend().bias_dropout_add(slice(sum), slice(base), slice(x), slice(bias),
                                        rows.count() - first, dropout);
        EXPECT_EQ(sum, out);
      }
    }
}

}  // namespace
}  // namespace lockstep
