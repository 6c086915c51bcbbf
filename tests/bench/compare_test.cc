// Comparisons: statistics against worked examples; rates of false alarms and of missed slowdowns
// against their promised limits; how a result describes its machine.
#include "bench/results/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/results/environment.h"
#include "bench/results/statistics.h"
#include "tests/bench/real_samples.h"

namespace lockstep {
namespace {

TEST(MannWhitney, WorkedExamples) {
  // U = 16 of 16 pairs: mean 8, variance 12.
  EXPECT_NEAR(chance_of_being_larger(all_of({1, 4, 2, 3}), all_of({5, 8, 6, 7})),
              std::erfc((16 - 8 - 0.5) / std::sqrt(12.0) / std::sqrt(2.0)) / 2, 1e-15);
  // Ranks 1, 2.5, 2.5, 4 with one tie of two: U of {2, 3} is 3.5 of 4, variance 5/3 (1 - 6/60).
  EXPECT_NEAR(
      chance_of_being_larger(all_of({1, 2}), all_of({2, 3})),
      std::erfc((3.5 - 2 - 0.5) / std::sqrt(4.0 / 12 * (5 - 6.0 / 12)) / std::sqrt(2.0)) / 2,
      1e-15);
  // Samples in order say as much as two thirds as many.
  EXPECT_NEAR(chance_of_being_larger(all_of({1, 2, 3, 4}), all_of({5, 6, 7, 8})),
              std::erfc((16 - 8 - 0.5) / std::sqrt(12.0 * 1.5) / std::sqrt(2.0)) / 2, 1e-15);
  EXPECT_EQ(chance_of_being_larger(all_of({5, 5, 5}), all_of({5, 5})), 1) << "all equal";
  EXPECT_EQ(chance_of_being_larger(all_of({}), all_of({1})), 1);
  EXPECT_GT(chance_of_being_larger(all_of({5, 8, 6, 7}), all_of({1, 4, 2, 3})), 0.98) << "smaller";
}

TEST(Pairs, AreTestedByTheirRatios) {
  // Ratios 2, 8, 4, 6: all 16 products of two exceed 1. The variance of the count is that of twice
  // the sum of signed ranks, 4 * 4 * 9 / 6.
  const auto [before, after] = pairs_of({1, 100, 10, 1}, {2, 800, 40, 6});
  EXPECT_NEAR(chance_of_being_larger(before, after),
              std::erfc((16 - 8 - 0.5) / std::sqrt(24.0) / std::sqrt(2.0)) / 2, 1e-15);
  const auto [least, most] = ratio_interval(before, after);
  EXPECT_NEAR(least, 2, 1e-12);
  EXPECT_NEAR(most, 8, 1e-12);
  const auto [same, again] = pairs_of({1, 100, 10, 7}, {1, 100, 10, 7});
  EXPECT_EQ(chance_of_being_larger(same, again), 1);
}

TEST(AutocorrelationTime, CountsSamplesThatSayAsMuchAsOne) {
  EXPECT_EQ(autocorrelation_time({1, 2, 1, 2, 1, 2}), 1) << "less than independent counts as that";
  EXPECT_EQ(autocorrelation_time({5, 5, 5}), 1) << "all equal";
  EXPECT_EQ(autocorrelation_time({}), 1);
  // Ranks 1 to 4 in order: covariances 5, 1.25, -1.5, -2.25; 2 (5 + 1.25) / 5 - 1.
  EXPECT_DOUBLE_EQ(autocorrelation_time({10, 20, 30, 40}), 1.5);
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise;
  std::vector<double> repeated;
  for (int i = 0; i < 200; ++i) repeated.insert(repeated.end(), 10, noise(random));
  EXPECT_NEAR(autocorrelation_time(repeated), 10, 4);
}

TEST(RatioInterval, HoldsTheRatioAndNarrowsWithSamples) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(1, 0.03);
  const auto samples = [&](int count, double factor) {
    std::vector<double> result;
    for (int i = 0; i < count; ++i) result.push_back(factor * noise(random));
    return result;
  };
  int held = 0, held_by_half = 0;
  constexpr int trials = 400;
  const auto holds = [](const RatioInterval& interval) {
    return interval.least <= 1.1 && 1.1 <= interval.most;
  };
  for (int i = 0; i < trials; ++i) {
    const SampleSet before = all_of(samples(20, 100)), after = all_of(samples(20, 110));
    held += holds(ratio_interval(before, after));
    held_by_half += holds(ratio_interval(faster_half(before), faster_half(after)));
  }
  EXPECT_GE(held, trials * 86 / 100);
  EXPECT_GE(held_by_half, trials * 86 / 100);
  EXPECT_LE(held_by_half, trials * 94 / 100) << "the halves say less than they count";
  const RatioInterval few = ratio_interval(all_of(samples(5, 1)), all_of(samples(5, 1)));
  const RatioInterval many = ratio_interval(all_of(samples(2000, 1)), all_of(samples(2000, 1)));
  EXPECT_LT(many.most - many.least, 0.01);
  EXPECT_GT(few.most - few.least, many.most - many.least);
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

bool is_change(const ComparedRow& row) {
  return row.verdict == Verdict::slower || row.verdict == Verdict::faster;
}

TEST(Compare, SeldomAlarmsAndSeldomMisses) {
  std::mt19937_64 random(7);
  constexpr int sweeps = 500;
  int alarms = 0, found = 0, mistaken = 0;
  for (int i = 0; i < sweeps; ++i) {
    const Samples before = sweep(random, 0, 1);
    bool alarm = false;
    for (const ComparedRow& row : compare_samples(before, sweep(random, 0, 1), {}))
      alarm = alarm || is_change(row);
    alarms += alarm;
    int place = 0;
    for (const ComparedRow& row : compare_samples(before, sweep(random, 1, 1.1), {})) {
      if (place++ == 0)
        found += row.verdict == Verdict::slower;
      else
        mistaken += is_change(row);
    }
  }
  EXPECT_LE(alarms, sweeps * 2 / 100) << "of " << sweeps << " comparisons of the same with itself";
  EXPECT_GE(found, sweeps * 95 / 100) << "of as many with one row 10 % slower";
  EXPECT_LE(mistaken, sweeps * 2 / 100);
}

// Draws as many samples as there are, five consecutive ones at a time: this keeps what neighbours
// have in common.
std::vector<double> drawn_again(const std::vector<double>& samples, std::mt19937_64& random) {
  constexpr std::size_t block = 5;
  std::uniform_int_distribution<std::size_t> begins(0, samples.size() - block);
  std::vector<double> drawn;
  while (drawn.size() < samples.size()) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(begins(random));
    drawn.insert(drawn.end(), begin, begin + block);
  }
  return drawn;
}

TEST(Compare, SeldomAlarmsAndSeldomMissesWithRealSamples) {
  std::mt19937_64 random(11);
  constexpr int sweeps = 200;
  int alarms = 0, found = 0, found_sweeps = 0;
  const auto sweep = [&](double factor) {
    Samples samples;
    for (std::size_t row = 0; row < real_samples.size(); ++row)
      for (const double sample : drawn_again(real_samples[row], random))
        samples[fmt::format("row {:02}", row)].push_back(sample * factor);
    return samples;
  };
  const auto slower = [](const std::vector<ComparedRow>& rows) {
    return std::ranges::count(rows, Verdict::slower, &ComparedRow::verdict);
  };
  for (int i = 0; i < sweeps; ++i) {
    const Samples before = sweep(1), after = sweep(1), slow = sweep(1.1);
    alarms += slower(compare_samples(before, after, {})) > 0;
    found_sweeps += slower(compare_samples(before, slow, {})) > 0;
    Samples one = after;
    const std::string name = fmt::format("row {:02}", static_cast<std::size_t>(i) % one.size());
    one[name] = slow.at(name);
    for (const ComparedRow& row : compare_samples(before, one, {}))
      found += row.name == name && row.verdict == Verdict::slower;
  }
  EXPECT_LE(alarms, sweeps * 2 / 100);
  EXPECT_EQ(found_sweeps, sweeps) << "everything 10 % slower";
  EXPECT_GE(found, sweeps * 95 / 100) << "one row 10 % slower";
}

TEST(Compare, NeedsAnEffectAndEnoughSamples) {
  const auto compared = [](const std::vector<double>& before, const std::vector<double>& after) {
    return compare_samples({{"x", before}}, {{"x", after}}, {}).front();
  };
  const std::vector<double> base = {100, 101, 100.5, 101.5, 100.2, 101.2, 100.7, 100.9};
  const auto times = [](std::vector<double> samples, double factor) {
    for (double& value : samples) value *= factor;
    return samples;
  };
  EXPECT_EQ(compared(base, times(base, 1.03)).verdict, Verdict::same) << "too small to matter";
  EXPECT_EQ(compared(base, times(base, 1.046)).verdict, Verdict::unclear) << "may be 5 % or less";
  EXPECT_EQ(compared(base, times(base, 1.1)).verdict, Verdict::slower);
  EXPECT_EQ(compared(base, times(base, 0.8)).verdict, Verdict::faster);
  EXPECT_EQ(compared({1, 2, 3}, {10, 20, 30}).verdict, Verdict::too_few_samples);
  const auto rows = compare_samples({{"a", base}}, {{"b", base}}, {});
  EXPECT_EQ(rows[0].verdict, Verdict::only_old);
  EXPECT_EQ(rows[1].verdict, Verdict::only_new);
}

TEST(Compare, WhatSamplesCannotTellIsUnclear) {
  const auto rows =
      compare_samples({{"x", {100, 900, 120, 800, 110}}}, {{"x", {90, 850, 95, 100, 80}}}, {});
  EXPECT_LT(rows[0].change(), -0.1);
  EXPECT_EQ(rows[0].verdict, Verdict::unclear);
  EXPECT_GT(rows[0].within, 0.5);
}

// Another program runs for a while: it slows some samples, more of one result than of the other.
TEST(Compare, DisturbancesOfSomeSamplesAreNoChange) {
  std::mt19937_64 random(13);
  std::normal_distribution<double> noise(100, 1);
  const auto compared = [&](int disturbed_before, int disturbed_after, double factor) {
    const auto samples = [&](int disturbed, double speed) {
      std::vector<double> result;
      for (int i = 0; i < 60; ++i)
        result.push_back(noise(random) * (i % 6 < disturbed ? 1.25 : 1) * speed);
      return result;
    };
    return compare_samples({{"x", samples(disturbed_before, 1)}},
                           {{"x", samples(disturbed_after, factor)}}, {})
        .front();
  };
  int same = 0;
  for (int i = 0; i < 50; ++i) {
    const ComparedRow more = compared(1, 4, 1);
    EXPECT_GT(more.change(), 0.2);
    EXPECT_NE(more.verdict, Verdict::slower);
    same += compared(1, 2, 1).verdict == Verdict::same;
    EXPECT_EQ(compared(3, 1, 1.1).verdict, Verdict::slower) << "slower, and less disturbed";
  }
  EXPECT_GE(same, 45);
  const ComparedRow half = compared(2, 3, 1);
  EXPECT_GT(half.change(), 0.2);
  EXPECT_EQ(half.verdict, Verdict::same);
  EXPECT_NE(text_of({.differences = {}, .rows = {half}}).find("same in the faster half"),
            std::string::npos);
  EXPECT_FALSE(compared(0, 0, 1).only_faster_half);
}

// A machine that is twice as fast for some time, and then is not. Results measured in turn see each
// state alike.
TEST(Compare, ChangesOfTheMachineAreNoneOfTheProgram) {
  std::mt19937_64 random(17);
  constexpr int sweeps = 100, rows = 10, pairs = 80, rounds_of_state = 15;
  std::normal_distribution<double> noise(1, 0.04);
  std::bernoulli_distribution changes(1.0 / rounds_of_state);
  std::ptrdiff_t alarms = 0, found = 0, found_alone = 0, found_unpaired = 0;
  for (int i = 0; i < sweeps; ++i) {
    Samples before, after, slow;
    double state = 1;
    for (int pair = 0; pair < pairs; ++pair) {
      if (changes(random)) state = 3 - state;
      for (int row = 0; row < rows; ++row) {
        const std::string name = fmt::format("row {:02}", row);
        before[name].push_back(state * noise(random));
        after[name].push_back(state * noise(random));
        slow[name].push_back(after[name].back() * 1.1);
      }
    }
    const auto slower = [&](const Samples& now, bool in_turn) {
      return std::ranges::count(compare_samples(before, now, {}, in_turn), Verdict::slower,
                                &ComparedRow::verdict);
    };
    alarms += slower(after, true) > 0;
    found += slower(slow, true);
    found_unpaired += slower(slow, false);
    after["row 07"] = slow["row 07"];
    found_alone += slower(after, true) == 1;
  }
  EXPECT_LE(alarms, sweeps * 2 / 100);
  EXPECT_GE(found, sweeps * rows * 95 / 100);
  EXPECT_GE(found_alone, sweeps * 95 / 100);
  EXPECT_LE(found_unpaired, sweeps * rows / 2) << "pairs are needed";
}

TEST(Compare, SizesSortAsNumbers) {
  Samples samples;
  for (const char* name :
       {"ring/bytes:1024", "ring/bytes:64", "ring/bytes:65536", "ring/bytes:8192"})
    samples[name] = {1, 2, 3, 4};
  std::vector<std::string> order;
  for (const ComparedRow& row : compare_samples(samples, samples, {})) order.push_back(row.name);
  EXPECT_EQ(order, (std::vector<std::string>{"ring/bytes:64", "ring/bytes:1024", "ring/bytes:8192",
                                             "ring/bytes:65536"}));
}

TEST(Environment, ReadsTheRateOfEachNetworkAdapter) {
  const std::filesystem::path folder = testing::TempDir() + "lockstep-adapters";
  std::filesystem::create_directories(folder / "mlx5_0" / "ports" / "1");
  std::ofstream(folder / "mlx5_0" / "ports" / "1" / "rate") << "400 Gb/sec (4X NDR)\n";
  EXPECT_EQ(network_adapters(folder),
            (std::map<std::string, std::string>{{"mlx5_0/1", "400 Gb/sec (4X NDR)"}}));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(network_adapters(folder).empty());
}

}  // namespace
}  // namespace lockstep
