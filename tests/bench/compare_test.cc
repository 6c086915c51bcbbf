// Comparisons: statistics against worked examples; rates of false alarms and of missed slowdowns
// against their promised limits.
#include "bench/results/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "bench/results/statistics.h"

namespace lockstep {
namespace {

TEST(MannWhitney, WorkedExamples) {
  // U = 16 of 16 pairs: mean 8, variance 12.
  EXPECT_NEAR(chance_of_being_larger({1, 2, 3, 4}, {5, 6, 7, 8}),
              std::erfc((16 - 8 - 0.5) / std::sqrt(12.0) / std::sqrt(2.0)) / 2, 1e-15);
  // Ranks 1, 2.5, 2.5, 4 with one tie of two: U of {2, 3} is 3.5 of 4, variance 5/3 (1 - 6/60).
  EXPECT_NEAR(
      chance_of_being_larger({1, 2}, {2, 3}),
      std::erfc((3.5 - 2 - 0.5) / std::sqrt(4.0 / 12 * (5 - 6.0 / 12)) / std::sqrt(2.0)) / 2,
      1e-15);
  EXPECT_EQ(chance_of_being_larger({5, 5, 5}, {5, 5}), 1) << "all equal";
  EXPECT_EQ(chance_of_being_larger({}, {1}), 1);
  EXPECT_GT(chance_of_being_larger({5, 6, 7, 8}, {1, 2, 3, 4}), 0.98) << "smaller";
}

TEST(BenjaminiHochberg, WorkedExample) {
  const auto rates = false_discovery_rates({0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected = {0.02, 0.04, 0.04, 0.02};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-15);
  EXPECT_TRUE(false_discovery_rates({}).empty());
}

// 30 rows of 20 samples with 3 % noise; the first `slowed` rows are slower by the factor.
Samples sweep(std::mt19937_64& random, int slowed, double factor) {
  std::normal_distribution<double> noise(1, 0.03);
  Samples samples;
  for (int row = 0; row < 30; ++row)
    for (int i = 0; i < 20; ++i)
      samples[fmt::format("row {:02}", row)].push_back(100 * noise(random) *
                                                       (row < slowed ? factor : 1));
  return samples;
}

TEST(Compare, SeldomAlarmsAndSeldomMisses) {
  std::mt19937_64 random(7);
  constexpr int sweeps = 500;
  int alarms = 0, found = 0, mistaken = 0;
  for (int i = 0; i < sweeps; ++i) {
    const Samples before = sweep(random, 0, 1);
    bool alarm = false;
    for (const ComparedRow& row : compare_samples(before, sweep(random, 0, 1), {}))
      alarm = alarm || row.verdict != Verdict::same;
    alarms += alarm;
    int place = 0;
    for (const ComparedRow& row : compare_samples(before, sweep(random, 1, 1.1), {})) {
      if (place++ == 0)
        found += row.verdict == Verdict::slower;
      else
        mistaken += row.verdict != Verdict::same;
    }
  }
  EXPECT_LE(alarms, sweeps * 2 / 100) << "of " << sweeps << " comparisons of the same with itself";
  EXPECT_GE(found, sweeps * 95 / 100) << "of as many with one row 10 % slower";
  EXPECT_LE(mistaken, sweeps * 2 / 100);
}

TEST(Compare, NeedsAnEffectAndEnoughSamples) {
  const auto verdict = [](const std::vector<double>& before, const std::vector<double>& after) {
    return compare_samples({{"x", before}}, {{"x", after}}, {}).front().verdict;
  };
  const std::vector<double> base = {100, 101, 102, 103, 104, 105, 106, 107};
  const auto times = [&](double factor) {
    std::vector<double> scaled = base;
    for (double& value : scaled) value *= factor;
    return scaled;
  };
  EXPECT_EQ(verdict(base, times(1.04)), Verdict::same) << "too small to matter";
  EXPECT_EQ(verdict(base, times(1.1)), Verdict::slower);
  EXPECT_EQ(verdict(base, times(0.8)), Verdict::faster);
  EXPECT_EQ(verdict({1, 2, 3}, {10, 20, 30}), Verdict::too_few_samples);
  const auto rows = compare_samples({{"a", base}}, {{"b", base}}, {});
  EXPECT_EQ(rows[0].verdict, Verdict::only_old);
  EXPECT_EQ(rows[1].verdict, Verdict::only_new);
}

}  // namespace
}  // namespace lockstep
