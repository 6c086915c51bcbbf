// Change points of synthetic series: found at their night, and none where there is none.
#include "bench/results/change_points.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep {
namespace {

using Series = std::vector<double>;
constexpr int nights = 30;

// A night's time is 100 times `level(night)`, with noise of this relative size.
template <typename Level>
Series series_of(std::mt19937_64& random, double noise, Level level) {
  std::normal_distribution<double> normal(0, noise);
  Series series;
  for (int night = 0; night < nights; ++night)
    series.push_back(100 * level(night) * std::exp(normal(random)));
  return series;
}

auto steady() {
  return [](int) { return 1.0; };
}

// Whether the only change is at this night, or one beside it.
bool is_found(const SeriesChanges& found, int night) {
  return found.changes.size() == 1 && !found.drift &&
         std::abs(static_cast<int>(found.changes[0].at) - night) <= 1;
}

TEST(ChangePoints, StudentsTTestAsInTables) {
  EXPECT_NEAR(chance_of_t(12.706, 1), 0.05, 1e-4);
  EXPECT_NEAR(chance_of_t(4.303, 2), 0.05, 1e-4);
  EXPECT_NEAR(chance_of_t(-3.182, 3), 0.05, 1e-4);
  EXPECT_NEAR(chance_of_t(2.228, 10), 0.05, 1e-4);
  EXPECT_NEAR(chance_of_t(3.646, 30), 0.001, 1e-5);
  EXPECT_NEAR(chance_of_t(3.659, 29), 0.001, 1e-5);
  EXPECT_EQ(chance_of_t(0, 7), 1);
}

// With 3 % noise, 10 % more is 3.2 deviations: even if the levels were known, 2 of 100 series would
// show it two nights from where it is.
TEST(ChangePoints, TenPercentAreFoundWithinANight) {
  constexpr int seeds = 50;
  for (const auto& [noise, least] : {std::pair(0.01, 1.0), {0.02, 0.98}, {0.03, 0.75}}) {
    int found_in_all = 0;
    for (int night = 4; night <= 24; ++night) {  // the 5th to the 25th
      int found = 0;
      for (unsigned seed = 0; seed < seeds; ++seed) {
        std::mt19937_64 random(seed);
        const auto slower = series_of(random, noise, [&](int n) { return n < night ? 1 : 1.1; });
        found += is_found(changes_of(slower, {}), night);
      }
      EXPECT_GE(found, least * seeds) << "night " << night << ", noise " << noise;
      found_in_all += found;
    }
    EXPECT_GE(found_in_all, seeds * 21 * 93 / 100) << "noise " << noise;
  }
}

TEST(ChangePoints, TellsTheLevelsAndTheDirection) {
  std::mt19937_64 random(1);
  const auto found =
      changes_of(series_of(random, 0.01, [](int n) { return n < 12 ? 1 : 0.9; }), {});
  ASSERT_EQ(found.changes.size(), 1U);
  EXPECT_EQ(found.changes[0].at, 12U);
  EXPECT_NEAR(found.changes[0].before, 100, 1);
  EXPECT_NEAR(found.changes[0].after, 90, 1);
  EXPECT_NEAR(found.changes[0].change(), -0.1, 0.015);
  EXPECT_LT(found.changes[0].chance, 1e-9);
}

TEST(ChangePoints, NoiseIsNoChange) {
  for (const double noise : {0.0, 0.01, 0.02, 0.03}) {
    int alarms = 0;
    for (unsigned seed = 0; seed < 3000; ++seed) {
      std::mt19937_64 random(seed);
      const SeriesChanges found = changes_of(series_of(random, noise, steady()), {});
      alarms += !found.changes.empty() || found.drift;
    }
    EXPECT_EQ(alarms, 0) << "noise " << noise;
  }
}

// Nights in which the machine is in one of two states, and large noise.
TEST(ChangePoints, StatesOfAMachineSeldomAlarm) {
  int alarms = 0, alarms_of_noise = 0;
  constexpr int seeds = 1000;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    std::bernoulli_distribution is_slow(0.5);
    alarms +=
        !changes_of(series_of(random, 0.02, [&](int) { return is_slow(random) ? 1.3 : 1; }), {})
             .changes.empty();
    alarms_of_noise += !changes_of(series_of(random, 0.2, steady()), {}).changes.empty();
  }
  EXPECT_LE(alarms, seeds / 100);
  EXPECT_LE(alarms_of_noise, seeds / 1000);
}

// Measured by one program, 30 times in a row, on a virtual machine that is slow at times.
TEST(ChangePoints, RealTimesOfOneProgramAreNoChange) {
  const Series real = {31.23, 28.7,  10.57, 11.39, 28.85, 30.37, 11.93, 8.34,  11.13, 10.12,
                       11.96, 11.49, 12.46, 9.97,  7.25,  10.45, 10.44, 10.2,  9.82,  30.56,
                       9.96,  10.27, 12.96, 12.53, 12.63, 12.29, 12.62, 10.63, 31.93, 15.25};
  EXPECT_TRUE(changes_of(real, {}).changes.empty());
  EXPECT_FALSE(changes_of(real, {}).drift);
}

TEST(ChangePoints, OneBadNightIsMarkedAndIsNoChange) {
  for (int bad = 0; bad < nights; ++bad)
    for (const double factor : {0.7, 1.15, 3.0}) {
      std::mt19937_64 random(7);
      Series series = series_of(random, 0.01, steady());
      series[static_cast<std::size_t>(bad)] *= factor;
      const SeriesChanges found = changes_of(series, {});
      EXPECT_TRUE(found.changes.empty()) << bad << ", " << factor;
      EXPECT_FALSE(found.drift);
      EXPECT_EQ(found.outliers, std::vector{static_cast<std::size_t>(bad)}) << factor;
    }
}

TEST(ChangePoints, ABadNightDoesNotHideAChange) {
  for (int bad = 0; bad < nights; ++bad) {
    std::mt19937_64 random(9);
    Series series = series_of(random, 0.01, [](int n) { return n < 15 ? 1 : 1.1; });
    series[static_cast<std::size_t>(bad)] *= 1.5;
    const SeriesChanges found = changes_of(series, {});
    ASSERT_EQ(found.changes.size(), 1U) << bad;
    EXPECT_EQ(found.changes[0].at, bad == 15 ? 16U : 15U) << "counted with the outlier";
    EXPECT_EQ(found.outliers, std::vector{static_cast<std::size_t>(bad)});
  }
}

TEST(ChangePoints, FindsSeveralLevels) {
  int stairs = 0, back = 0;
  constexpr int seeds = 50;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    const auto up = changes_of(
        series_of(random, 0.02, [](int n) { return n < 10   ? 1
                                                   : n < 20 ? 1.1
                                                            : 1.21; }), {});
    stairs += up.changes.size() == 2 && !up.drift;
    const auto bump =
        changes_of(series_of(random, 0.02, [](int n) { return n < 10 || n >= 20 ? 1 : 1.1; }), {});
    back += bump.changes.size() == 2 && bump.changes[0].after > bump.changes[0].before &&
            bump.changes[1].after < bump.changes[1].before;
  }
  EXPECT_EQ(stairs, seeds);
  EXPECT_EQ(back, seeds);
}

TEST(ChangePoints, ASlowDriftHasNoNight) {
  int drifts = 0, changes = 0;
  constexpr int seeds = 100;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    const auto found =
        changes_of(series_of(random, 0.01, [](int n) { return 1 + 0.15 * n / (nights - 1); }), {});
    changes += !found.changes.empty();
    if (!found.drift) continue;
    ++drifts;
    EXPECT_NEAR(*found.drift, 0.15, 0.03);
  }
  EXPECT_EQ(drifts, seeds);
  EXPECT_EQ(changes, 0);
}

TEST(ChangePoints, NeedsAnEffectAndTwoLevels) {
  std::mt19937_64 random(3);
  const auto small = series_of(random, 0.003, [](int n) { return n < 15 ? 1 : 1.03; });
  EXPECT_TRUE(changes_of(small, {}).changes.empty()) << "too small to matter";
  EXPECT_EQ(changes_of(small, {.effect = 0.02}).changes.size(), 1U);
  EXPECT_TRUE(changes_of({100, 100, 100, 110, 110, 110, 110}, {}).changes.empty())
      << "three nights";
  EXPECT_EQ(changes_of({100, 101, 100, 101, 110, 111, 110, 111}, {}).changes.size(), 1U);
  EXPECT_TRUE(changes_of({}, {}).changes.empty());
  EXPECT_TRUE(changes_of({100}, {}).changes.empty());
  EXPECT_TRUE(changes_of({100, 200}, {}).changes.empty());
}

TEST(ChangePoints, VirtualTimesChangeWhereTheyDiffer) {
  const auto found = exact_changes_of({10, 10, 10.001, 10.001, 10.001 * (1 + 1e-12), 10});
  ASSERT_EQ(found.changes.size(), 2U);
  EXPECT_EQ(found.changes[0].at, 2U);
  EXPECT_EQ(found.changes[1].at, 5U);
  EXPECT_TRUE(exact_changes_of({}).changes.empty());
}

}  // namespace
}  // namespace lockstep
