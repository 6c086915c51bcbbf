// The rule that names slow ranks, on given times: noise names nobody, slow ranks are named wherever
// they are.
#include "bench/results/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/collectives/rank_rows.h"
#include "bench/results/slow_ranks.h"
#include "bench/results/train_json.h"
#include "collectives/base/batch_means.h"
#include "parallel/rank/own_time.h"
#include "parallel/train/trainer.h"
#include "tests/golden/golden.h"

namespace lockstep {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

std::vector<MeasuredTime> times_of(const std::vector<double>& seconds, double error = 0) {
  std::vector<MeasuredTime> times;
  for (const double each : seconds) times.push_back({.seconds = each, .error = error});
  return times;
}

std::vector<std::size_t> named_among(const std::vector<MeasuredTime>& times,
                                     const OutlierRule& rule = {}) {
  std::vector<std::size_t> found;
  for (const Outlier& outlier : find_outliers(times, rule)) {
    EXPECT_FALSE(std::isnan(outlier.score));
    found.push_back(outlier.index);
  }
  return found;
}

using Indices = std::vector<std::size_t>;

TEST(Outliers, ASlowUnitIsNamedWhereverItIs) {
  std::mt19937 random(1);
  for (const std::size_t count : {3u, 4u, 5u, 8u, 64u, 1000u})
    for (int trial = 0; trial < 50; ++trial) {
      std::normal_distribution noise(1.0, 0.03);
      std::vector<double> seconds(count);
      for (double& each : seconds) each = noise(random);
      const std::size_t slow = random() % count;
      seconds[slow] *= 3;
      EXPECT_EQ(named_among(times_of(seconds, 0.03)), Indices{slow}) << count;
    }
}

TEST(Outliers, HealthyNoiseNamesNobody) {
  std::mt19937 random(2);
  for (const std::size_t count : {3u, 4u, 8u, 64u})
    for (int trial = 0; trial < 500; ++trial) {
      // A few of the samples behind each mean are far too long.
      std::lognormal_distribution<double> noise(0, 0.1);
      std::vector<MeasuredTime> times;
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<double> samples(40);
        for (double& each : samples) each = noise(random) * (random() % 50 == 0 ? 20 : 1);
        const SampleMean mean = mean_of(samples);
        times.push_back({.seconds = mean.value, .error = mean.error});
      }
      EXPECT_EQ(named_among(times), Indices{}) << count << " times, trial " << trial;
    }
}

TEST(Outliers, SeveralAreNamedSlowestFirst) {
  EXPECT_EQ(named_among(times_of({1, 3, 1, 1, 4, 1, 1})), (Indices{4, 1}));
  EXPECT_EQ(named_among(times_of({1, 3, 1, 3, 1})), (Indices{1, 3})) << "a tie keeps the order";
}

TEST(Outliers, FewUnitsOrManySlowOnesNameNobody) {
  EXPECT_EQ(named_among({}), Indices{});
  EXPECT_EQ(named_among(times_of({1, 3})), Indices{}) << "either may be the slow one";
  EXPECT_EQ(named_among(times_of({1, 1, 3, 3})), Indices{});
  EXPECT_EQ(named_among(times_of({1, 3, 3})), Indices{}) << "the fast one is no laggard";
  EXPECT_EQ(named_among(times_of({0, 0, 0})), Indices{});
  EXPECT_EQ(named_among(times_of({2, 2, 2, 2})), Indices{});
}

TEST(Outliers, EachFloorHolds) {
  // MAD is 0: only the share decides.
  EXPECT_EQ(named_among(times_of({1, 1, 1, 1.09})), Indices{});
  EXPECT_EQ(named_among(times_of({1, 1, 1, 1.11})), Indices{3});
  EXPECT_EQ(named_among(times_of({1, 1, 1, 1.11}), {.share = 0.2}), Indices{});
  // The spread of the others: 3.5 times 1.4826 times a MAD of 0.1.
  EXPECT_EQ(named_among(times_of({0.9, 0.9, 1, 1.1, 1.5})), Indices{});
  EXPECT_EQ(named_among(times_of({0.9, 0.9, 1, 1.1, 1.55})), Indices{4});
  // The errors of the times, of which one alone does not count.
  EXPECT_EQ(named_among(times_of({1, 1, 1, 1.3}, 0.1)), Indices{});
  std::vector<MeasuredTime> one_uncertain = times_of({1, 1, 1, 1.3}, 0.01);
  one_uncertain[0].error = 10;
  EXPECT_EQ(named_among(one_uncertain), Indices{3});
}

TEST(Outliers, WhatHappenedOnceCountsOnlyIfItWasLong) {
  std::vector<MeasuredTime> times = times_of({1, 1, 1, 3}, 0.01);
  times[3].error = 2;  // one sample that took as long as all others
  EXPECT_EQ(named_among(times), Indices{});
  EXPECT_EQ(named_among(times, {.long_seconds = 2.5}), Indices{});
  EXPECT_EQ(named_among(times, {.long_seconds = 2}), Indices{3});
  for (MeasuredTime& time : times) time.error = infinite;
  EXPECT_EQ(named_among(times), Indices{}) << "too few samples";
  EXPECT_EQ(named_among(times, {.long_seconds = 1}), Indices{3});
}

TEST(ExplainedShare, IsHowMuchLessAllWouldWait) {
  const auto share = [](const std::vector<double>& seconds, double waited) {
    const auto times = times_of(seconds);
    return explained_share(times, find_outliers(times), waited);
  };
  EXPECT_DOUBLE_EQ(share({1, 1, 1, 3}, 6), 1);
  EXPECT_DOUBLE_EQ(share({1, 1, 1, 3}, 12), 0.5) << "the rest of the waiting has other reasons";
  EXPECT_DOUBLE_EQ(share({1, 1, 1, 3}, 0), 1) << "waits that were not counted";
  EXPECT_DOUBLE_EQ(share({1, 1, 1, 3, 3}, 6), 1) << "two that are slow explain it together";
  EXPECT_DOUBLE_EQ(share({1, 1.05, 0.95, 3}, 6),
                   (2 + 1.95 + 2.05 - (0.05 - 0.0 + 0.1 + 0.025)) / 6);
  EXPECT_EQ(share({1, 1, 1, 1}, 10), 0);
  EXPECT_EQ(share({}, 10), 0);
}

TEST(SampleMean, HasTheErrorOfItsBatches) {
  EXPECT_EQ(mean_of(std::vector<double>{}).value, 0);
  EXPECT_EQ(mean_of(std::vector<double>{1, 2, 6}).value, 3);
  EXPECT_EQ(mean_of(std::vector<double>{1, 2, 6}).error, infinite);
  const SampleMean few = mean_of(std::vector<double>{1, 3, 1, 3});
  EXPECT_DOUBLE_EQ(few.value, 2);
  EXPECT_DOUBLE_EQ(few.error, std::sqrt(4.0 / 3 / 4));
  // 16 samples in pairs: noise within a pair does not count.
  std::vector<double> pairs;
  for (int i = 0; i < 8; ++i) pairs.insert(pairs.end(), {1.0, 3.0});
  EXPECT_DOUBLE_EQ(mean_of(pairs).error, 0);
}

// The first step also allocates and loads. A process that was stopped while it waited did not wait.
TEST(OwnTimes, AreStepsWithoutWaiting) {
  OwnTimes times;
  times.add(10, 4, 0);
  EXPECT_EQ(times.mean().seconds, 6) << "the only step counts";
  times.add(2, 1, 0);
  times.add(2, 1, 0.5);
  times.add(3, 1, 7);
  const OwnTime mean = times.mean();
  EXPECT_EQ(mean.steps, 3);
  EXPECT_DOUBLE_EQ(mean.seconds, (1 + 1.5 + 3) / 3);
  EXPECT_DOUBLE_EQ(mean.waited, (1 + 0.5 + 0) / 3);
  EXPECT_EQ(mean.first, 6);
  EXPECT_EQ(mean.error, infinite);
  EXPECT_EQ(times.busy_seconds(), 6 + 1 + 1 + 2);
}

// Batches are merged as they become many.
// In virtual time a step may be all waiting, and its parts are rounded.
TEST(OwnTimes, AreNeverBelowZero) {
  OwnTimes times;
  for (int step = 0; step < 3; ++step) times.add(0.3, 0.1 + 0.2, 0);
  EXPECT_EQ(times.mean().seconds, 0);
  EXPECT_EQ(times.mean().first, 0);
}

TEST(OwnTimes, OfManyStepsHaveTheMeanOfAllAndTheErrorOfBatches) {
  OwnTimes even, rising;
  for (int step = 0; step < 1001; ++step) {
    even.add(step % 2 == 0 ? 1 : 3, 0, 0);
    rising.add(step, 0, 0);
  }
  EXPECT_EQ(even.mean().steps, 1000);
  EXPECT_DOUBLE_EQ(even.mean().seconds, 2);
  EXPECT_DOUBLE_EQ(even.mean().error, 0);
  EXPECT_DOUBLE_EQ(rising.mean().seconds, 500.5);
  EXPECT_NEAR(rising.mean().error, 109.1, 0.1) << "15 batches of 64 steps, taken as 8";
}

RankTime rank_time(int rank, double own, double waited, int kind = 0) {
  return {.rank = rank,
          .site = {.host = "h" + std::to_string(rank / 2), .device = "cuda:1"},
          .kind = kind,
          .own = {.seconds = own, .error = 0},
          .waited = waited};
}

TEST(SlowRanks, AreNamedWithHostDeviceAndShare) {
  const SlowRanks slow = slow_ranks(
      {rank_time(0, 1, 2.1), rank_time(1, 1, 2.1), rank_time(2, 3, 0.3), rank_time(3, 1, 2.1)},
      Clock::wall, 10);
  EXPECT_EQ(text_of(slow),
            "slow: rank 2 (host h1, device cuda:1) with 3.00 times the median own time of 4 ranks; "
            "it explains 91 % of all waiting: the cause");
  const nlohmann::ordered_json json = json_of(slow);
  EXPECT_EQ(json["compared"], 4);
  EXPECT_EQ(json["ranks"].size(), 1u);
  EXPECT_EQ(json["ranks"][0]["rank"], 2);
  EXPECT_EQ(json["ranks"][0]["host"], "h1");
  EXPECT_EQ(json["ranks"][0]["own"], 3);
  EXPECT_FALSE(json["ranks"][0].contains("score")) << "it is infinite";
  EXPECT_TRUE(json["is_cause"]);
}

TEST(SlowRanks, AreNoCauseOfWaitingWithOtherReasons) {
  const SlowRanks slow =
      slow_ranks({rank_time(0, 1, 4), rank_time(1, 1, 4), rank_time(2, 3, 2), rank_time(3, 1, 4)},
                 Clock::wall, 10);
  EXPECT_FALSE(slow.are_cause());
  EXPECT_TRUE(text_of(slow).ends_with("4 ranks; it explains 43 % of all waiting")) << text_of(slow);
}

TEST(SlowRanks, AreComparedWithRanksOfTheSameWork) {
  // The ranks of kind 1 do three times the work.
  std::vector<RankTime> ranks;
  for (int rank = 0; rank < 6; ++rank)
    ranks.push_back(rank_time(rank, rank < 3 ? 1 : 3, rank < 3 ? 2 : 0, rank / 3));
  EXPECT_EQ(text_of(slow_ranks(ranks, Clock::wall, 10)), "");
  EXPECT_EQ(slow_ranks(ranks, Clock::wall, 10).compared, 6u);
  ranks[4].own.seconds = 9;
  EXPECT_EQ(slow_ranks(ranks, Clock::wall, 10).outliers.at(0).index, 4u);
  ranks.erase(ranks.begin(), ranks.begin() + 4);
  EXPECT_EQ(slow_ranks(ranks, Clock::wall, 10).compared, 0u);
}

TEST(SlowRanks, AreNotNamedIfTheyExplainLittle) {
  const auto explained = [](double others) {
    return slow_ranks({rank_time(0, 1, others), rank_time(1, 1, others), rank_time(2, 3, others),
                       rank_time(3, 1, others)},
                      Clock::wall, 10)
        .explained;
  };
  EXPECT_DOUBLE_EQ(explained(7.4), 6 / 29.6);
  EXPECT_EQ(explained(7.6), 0);
}

// A pause of 0.2 s in one of 10 steps, whose error shows that it happened once.
TEST(SlowRanks, OnceCountsIfItWasLongInAll) {
  std::vector<RankTime> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(rank_time(rank, 0.01, 0));
  ranks[1].own = {.seconds = 0.03, .error = 0.02};
  EXPECT_EQ(slow_ranks(ranks, Clock::wall, 10).outliers.size(), 1u);
  EXPECT_EQ(slow_ranks(ranks, Clock::wall, 4).outliers.size(), 0u);
}

TrainOptions slow_training(int ranks) {
  TrainOptions options;
  options.technique = "ddp";
  options.model = test::golden_folder() + "/config.json";
  options.data = test::golden_folder() + "/tokens.bin";
  options.global_batch = ranks;
  options.steps = 3;
  options.threads = 1;
  options.compute_seconds = 0.01;
  return options;
}

TrainResult in_unit_time(const TrainOptions& options, int ranks, const LaunchOptions& world) {
  TrainResult result;
  const Plan plan = plan_of(options, ranks);
  launch(world, [&](RankContext& context) {
    TrainResult mine = train(context, plan);
    if (context.world.rank() == 0) result = std::move(mine);
  });
  return result;
}

// In virtual time: the times are given.
TEST(SlowRanks, OfATrainingRunAreTheStragglersAlone) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 8; ++trial) {
    const int ranks = 3 + static_cast<int>(random() % 4);
    const int slow = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const LaunchOptions world{
        .ranks = ranks, .clock = Clock::unit, .links = parse_links("alpha=1us,beta=10GB/s")};
    TrainOptions options = slow_training(ranks);
    const auto found = [&] {
      return slow_ranks(plan_of(options, ranks), world, in_unit_time(options, ranks, world));
    };
    EXPECT_EQ(text_of(found()), "");
    options.slow_ranks = {{slow, 3}};
    const SlowRanks named = found();
    ASSERT_EQ(named.outliers.size(), 1u);
    EXPECT_EQ(named.ranks[named.outliers[0].index].rank, slow);
    EXPECT_NEAR(named.outliers[0].seconds, 0.03, 1e-6);
    EXPECT_NEAR(named.outliers[0].median, 0.01, 1e-6);
    EXPECT_TRUE(named.are_cause()) << text_of(named);
  }
}

TEST(SlowRanks, OfAPipelineAreComparedWithinAStage) {
  const LaunchOptions world{.ranks = 6, .clock = Clock::unit};
  TrainOptions options = slow_training(3);
  options.technique = "3d";
  options.mesh_lengths[Axis::pp] = 2;
  options.slow_ranks = {{4, 3}};
  const SlowRanks named = slow_ranks(plan_of(options, 6), world, in_unit_time(options, 6, world));
  EXPECT_EQ(named.compared, 6u);
  ASSERT_EQ(named.outliers.size(), 1u);
  EXPECT_EQ(named.ranks[named.outliers[0].index].rank, 4);
}

TEST(RankRows, ArrivalsAreRelativeToTheFirstRank) {
  std::vector<BenchRank> ranks;
  launch({.ranks = 4, .clock = Clock::unit}, [&](RankContext& context) {
    BenchResult result;
    // Rank 0 arrives first and is held longest.
    const double held = 4 - context.world.rank();
    result.own = {.held = {held, held},
                  .seconds = {8, 8},
                  .waited = {6, 6},
                  .own = {2, 2},
                  .waited_for = {{context.world.left(), 12.0}}};
    BenchOptions options;
    options.operations_per_iteration = 2;
    auto gathered = gather_ranks(context.world, {result}, options);
    if (context.world.rank() == 0) ranks = std::move(gathered);
  });
  ASSERT_EQ(ranks.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const RankRow& row = ranks[static_cast<std::size_t>(rank)].rows.at(0);
    EXPECT_EQ(row.late, rank);
    EXPECT_EQ(row.seconds, 4) << "of one operation";
    EXPECT_EQ(row.own.seconds, 1);
    EXPECT_EQ(row.waited, 3);
    EXPECT_EQ(row.own.error, infinite) << "two iterations";
    ASSERT_EQ(row.waited_for.size(), 1u);
    EXPECT_EQ(row.waited_for[0].peer, (rank + 3) % 4);
    EXPECT_EQ(row.waited_for[0].seconds, 3);
  }
}

TEST(RankRows, OnlyResultsWithEqualWorkNameRanks) {
  BenchRun run;
  run.results.resize(2);
  run.results[0].equal_work = true;
  for (int rank = 0; rank < 4; ++rank) {
    const double root = rank == 1 ? 9 : 1, slow = rank == 2 ? 3 : 1;
    run.ranks.push_back(
        {.site = {.host = "h", .device = "host"},
         .rows = {{.counted = 10, .own = {.seconds = slow}, .waited = rank == 2 ? 0.0 : 2},
                  {.counted = 10, .own = {.seconds = root}, .waited = 0}}});
  }
  const SlowRanks named = slow_ranks(run, {.clock = Clock::wall});
  ASSERT_EQ(named.outliers.size(), 1u);
  EXPECT_EQ(named.outliers[0].index, 2u);
  EXPECT_TRUE(named.are_cause());
  run.results[0].equal_work = false;
  EXPECT_EQ(slow_ranks(run, {.clock = Clock::wall}).compared, 0u);
}

}  // namespace
}  // namespace lockstep
