// Dropout: which elements it keeps, and that this does not depend on how tensors are cut.
#include <gtest/gtest.h>

#include <cmath>

#include "models/backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

constexpr Count columns = 7;

template <typename T>
std::vector<T> dropped(std::vector<T> x, const Dropout& dropout) {
  std::vector<T> out(x.size(), T{99});
  host_backend().dropout(slice(out), slice(x), std::ssize(x) / columns, dropout);
  return out;
}

std::vector<double> ones(Count rows) {
  return std::vector<double>(static_cast<std::size_t>(rows * columns), 1.0);
}

TEST(Dropout, KeepsItsShareAndDividesItByThatShare) {
  const auto x = normals(20000 * columns, 1);
  for (const double rate : {0.01, 0.1, 0.5, 0.9}) {
    const auto out = dropped(x, {.rate = rate, .seed = 3, .stream = 4});
    const auto n = static_cast<double>(x.size());
    double kept = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (out[i] == 0) continue;
      ++kept;
      ASSERT_DOUBLE_EQ(out[i], x[i] / (1 - rate)) << i;
    }
    EXPECT_NEAR(kept, n * (1 - rate), 4 * std::sqrt(n * rate * (1 - rate))) << rate;
  }
}

TEST(Dropout, DropsWhereTheRandomBitsOfThePlaceAreBelowTheRate) {
  const Dropout dropout{.rate = 0.3, .seed = 5, .stream = -2, .first_row = 1000};
  const auto out = dropped(ones(50), dropout);
  for (Count i = 0; i < std::ssize(out); ++i) {
    const auto bits = static_cast<long double>(random_bits(5, -2, 1000 * columns + i));
    ASSERT_EQ(out[static_cast<std::size_t>(i)] == 0, bits < 0.3L * 0x1p64L) << i;
  }
  EXPECT_EQ(as<float>(out), dropped(as<float>(ones(50)), dropout));
}

TEST(Dropout, RowsMeetTheSameFateInEveryCut) {
  Dropout dropout{.rate = 0.4, .seed = 5, .stream = 6, .first_row = 3};
  const auto whole = dropped(ones(20), dropout);
  dropout.first_row += 8;
  EXPECT_EQ(dropped(ones(12), dropout),
            std::vector<double>(whole.begin() + 8 * columns, whole.end()));
}

TEST(Dropout, StreamsSeedsAndRowsDiffer) {
  const auto out = dropped(ones(20), {.rate = 0.5, .seed = 5, .stream = 6});
  EXPECT_EQ(out, dropped(ones(20), {.rate = 0.5, .seed = 5, .stream = 6}));
  EXPECT_NE(out, dropped(ones(20), {.rate = 0.5, .seed = 5, .stream = 7}));
  EXPECT_NE(out, dropped(ones(20), {.rate = 0.5, .seed = 6, .stream = 6}));
  EXPECT_NE(out, dropped(ones(20), {.rate = 0.5, .seed = 5, .stream = 6, .first_row = 1}));
}

TEST(Dropout, OfRateZeroKeepsAll) {
  const auto x = normals(5 * columns, 1);
  EXPECT_EQ(dropped(x, {.rate = 0, .seed = 5}), x);
}

TEST(Dropout, WorksInPlace) {
  const Dropout dropout{.rate = 0.4, .seed = 5};
  auto x = normals(20 * columns, 1);
  const auto out = dropped(x, dropout);
  host_backend().dropout(slice(x), slice(x), 20, dropout);
  EXPECT_EQ(x, out);
}

// With numbers that give the same bits in every order of summation.
TEST(Dropout, BetweenBiasAndResidualEqualsTheStepsAlsoInPlace) {
  constexpr Count rows = 20;
  const auto integers = [](Count count, std::uint64_t seed) {
    auto values = normals(count, seed);
    for (double& value : values) value = std::round(4 * value) + 0.5;
    return values;
  };
  const auto x = integers(rows * columns, 1), base = integers(rows * columns, 2);
  auto bias = integers(columns, 3);
  for (const double rate : {0.0, 0.5})
    for (const bool has_base : {false, true}) {
      const Dropout dropout{.rate = rate, .seed = 5, .stream = 6, .first_row = 9};
      std::vector<double> expected;
      for (std::size_t i = 0; i < x.size(); ++i)
        expected.push_back(x[i] + bias[i % static_cast<std::size_t>(columns)]);
      expected = dropped(expected, dropout);
      for (std::size_t i = 0; has_base && i < x.size(); ++i) expected[i] += base[i];

      const auto run = [&](auto out_of) {
        auto own_x = x, own_base = base, own_out = std::vector<double>(x.size(), 99);
        auto& out = out_of(own_x, own_base, own_out);
        host_backend().bias_dropout_add(slice(out), has_base ? slice(own_base) : Slice{},
                                        slice(own_x), slice(bias), rows, dropout);
        EXPECT_EQ(out, expected) << rate << has_base;
      };
      run([](auto&, auto&, auto& own) -> auto& { return own; });
      run([](auto& own_x, auto&, auto&) -> auto& { return own_x; });
      if (has_base) run([](auto&, auto& own_base, auto&) -> auto& { return own_base; });
    }
}

}  // namespace
}  // namespace lockstep
