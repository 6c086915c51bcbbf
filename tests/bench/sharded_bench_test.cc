// The benchmark of sharding: counts in all modes, ZeRO's formulas, and crossovers.
#include "bench/techniques/sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

ShardedBenchOptions small(ShardedMode mode) {
  ShardedBenchOptions options;
  options.mode = mode;
  options.train.model = "nano";
  options.train.sequence_length = 16;
  options.train.steps = 2;
  options.strategies = sharded_strategies();
  options.ranks = {1, 4};
  return options;
}

// Training counts on this machine, simulation and dry runs without data: all must agree.
TEST(ShardedBench, CountsTheSameInEveryMode) {
  ShardedBenchOptions trains = small(ShardedMode::train);
  trains.train.data = testing::TempDir() + "sharded_bench_text";
  std::ofstream(trains.train.data) << std::string(4096, 'a') + "b";
  const auto trained = bench_sharded(trains),
             simulated = bench_sharded(small(ShardedMode::simulate)),
             counted = bench_sharded(small(ShardedMode::count));
  ASSERT_EQ(trained.size(), 2 * sharded_strategies().size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    SCOPED_TRACE(trained[i].strategy);
    EXPECT_EQ(trained[i].skipped, "");
    EXPECT_TRUE(trained[i].step_seconds && simulated[i].step_seconds && !counted[i].step_seconds);
    for (const ShardedPoint* other : {&simulated[i], &counted[i]}) {
      EXPECT_EQ(other->sent_bytes, trained[i].sent_bytes);
      for (const char* use : {"parameters", "gradients", "optimizer", "activations"})
        EXPECT_EQ(other->peak_bytes.at(use), trained[i].peak_bytes.at(use)) << use;
      EXPECT_EQ(other->whole_blocks, trained[i].whole_blocks);
    }
    EXPECT_EQ(trained[i].sent_bytes.empty(), trained[i].ranks == 1);
  }
}

TEST(ShardedBench, GathersAsManyBlocksAsTheTableSays) {
  std::map<std::string, double> blocks;
  for (const ShardedPoint& point : bench_sharded(small(ShardedMode::count)))
    if (point.whole_blocks && point.ranks == 4) blocks[point.strategy] = *point.whole_blocks;
  EXPECT_EQ(blocks, (std::map<std::string, double>{{"zero-3", 2},
                                                   {"fsdp-none", 1},
                                                   {"fsdp-backward-post", 1},
                                                   {"fsdp-backward-pre", 2},
                                                   {"fsdp-forward", 2}}));
}

// Figure 1 of ZeRO's paper, for a model of 7.5 billion parameters on 64 ranks, in GB.
TEST(ShardedBench, RecomputesThePapersFigure) {
  EXPECT_NEAR(zero_bytes(0, 7.5e9, 64, DType::bf16) / 1e9, 120, 0.05);
  EXPECT_NEAR(zero_bytes(1, 7.5e9, 64, DType::bf16) / 1e9, 31.4, 0.05);
  EXPECT_NEAR(zero_bytes(2, 7.5e9, 64, DType::bf16) / 1e9, 16.6, 0.05);
  EXPECT_NEAR(zero_bytes(3, 7.5e9, 64, DType::bf16) / 1e9, 1.9, 0.05);
}

// What a rank keeps differs from the paper's formula only by uneven shards, of at most one element
// for each unit; and its peaks hold that, and whole units.
TEST(ShardedBench, KeepsWhatThePaperSays) {
  ShardedBenchOptions options = small(ShardedMode::count);
  options.train.dtype = DType::bf16;
  options.ranks = {1, 3, 64};
  for (const ShardedPoint& point : bench_sharded(options)) {
    if (point.strategy == "tp") continue;
    SCOPED_TRACE(point.strategy + " on " + std::to_string(point.ranks));
    double kept = 0;
    for (const auto& [use, bytes] : point.kept_bytes) {
      kept += static_cast<double>(bytes);
      EXPECT_LE(bytes, point.peak_bytes.at(use)) << use;
    }
    constexpr double units = 9, bytes_of_element = 16;
    EXPECT_NEAR(kept, point.paper_bytes, units * bytes_of_element);
  }
}

// The time of a step without overlap is that of the messages, once links are slow: three times
// (P-1)/P of the model for FSDP, two for DDP.
TEST(ShardedBench, SlowLinksTakeTheTimeOfTheBytes) {
  ShardedBenchOptions options = small(ShardedMode::simulate);
  options.train.overlap = false;
  options.links = {"alpha=0s,beta=1KB/s"};
  options.strategies = {"ddp", "zero-1", "zero-2", "fsdp-none"};
  options.ranks = {4};
  for (const ShardedPoint& point : bench_sharded(options)) {
    std::int64_t sent = 0;
    for (const auto& [label, bytes] : point.sent_bytes) sent += bytes;
    EXPECT_NEAR(*point.step_seconds / (static_cast<double>(sent) / 1e3), 1, 1e-3) << point.strategy;
  }
}

// The predicted timeline is the simulated one: all sizes of this model divide evenly by four ranks. So
// prefetching hides what the timeline says that it hides.
TEST(ShardedBench, StepsTakeTheTimeOfTheirTimelines) {
  ShardedBenchOptions options = small(ShardedMode::simulate);
  options.ranks = {2, 4};
  options.links = {"alpha=0s,beta=1MB/s", "alpha=1us,beta=5GB/s", "alpha=1us,beta=50GB/s", "free"};
  options.roofline = {.flops_per_s = 1e12, .bytes_per_s = 1e11};
  int hidden = 0;
  for (const bool overlap : {true, false})
    for (const int micro_batches : {1, 2}) {
      options.train.overlap = overlap;
      options.train.micro_batches = options.micro_batch_size = micro_batches;
      std::map<std::string, std::pair<double, double>> without;  // prefetching, by link and ranks
      for (const ShardedPoint& point : bench_sharded(options)) {
        SCOPED_TRACE(fmt::format("{} {} {} {} {}", point.strategy, point.ranks, point.link, overlap,
                                 micro_batches));
        const bool is_sharded = point.strategy != "ddp" && point.strategy != "tp";
        ASSERT_EQ(point.expected_step_seconds.has_value(), is_sharded);
        if (!is_sharded) continue;
        EXPECT_NEAR(*point.step_seconds / *point.expected_step_seconds, 1, 1e-9);
        auto& [measured, expected] = without[fmt::format("{} {}", point.link, point.ranks)];
        if (point.strategy == "fsdp-none") {
          measured = *point.step_seconds;
          expected = *point.expected_step_seconds;
        }
        if (point.strategy != "fsdp-forward" || !overlap) continue;
        const double predicted = expected - *point.expected_step_seconds;
        EXPECT_NEAR(measured - *point.step_seconds, predicted, 0.05 * std::abs(predicted) + 1e-12);
        hidden += predicted > 0.05 * expected ? 1 : 0;
      }
    }
  EXPECT_GT(hidden, 0);
}

// The timeline follows the plan's algorithms, whose choice matters where latency does; and it needs
// their closed forms.
TEST(ShardedBench, TimelinesFollowTheAlgorithms) {
  ShardedBenchOptions options = small(ShardedMode::simulate);
  options.strategies = {"zero-1", "zero-2", "fsdp-backward-pre"};
  options.ranks = {8};
  options.links = {"alpha=100us,beta=5GB/s"};
  std::map<std::string, double> fastest;
  for (const char* algorithm : {"ring", "pairwise+bruck", "recursive_halving+recursive_doubling"}) {
    options.train.algorithm = algorithm;
    for (const ShardedPoint& point : bench_sharded(options)) {
      SCOPED_TRACE(point.strategy + " " + algorithm);
      ASSERT_EQ(point.skipped, "");
      EXPECT_NEAR(*point.step_seconds / *point.expected_step_seconds, 1, 1e-9);
      const auto [before, is_first] = fastest.emplace(point.strategy, *point.step_seconds);
      if (is_first) continue;
      EXPECT_LT(*point.step_seconds, before->second);
      before->second = *point.step_seconds;
    }
  }
  options.train.algorithm = "auto";
  for (const ShardedPoint& point : bench_sharded(options))
    EXPECT_THAT(point.skipped, HasSubstr("a predicted timeline with --algorithm auto"));
}

// On slow links prefetching does not matter, on fast ones compute does not wait for it.
TEST(ShardedBench, PrefetchingHidesTime) {
  ShardedBenchOptions options = small(ShardedMode::simulate);
  options.strategies = {"fsdp-none", "fsdp-backward-post", "fsdp-backward-pre", "fsdp-forward"};
  options.ranks = {4};
  options.links = {"alpha=1us,beta=50GB/s"};
  options.roofline = {.flops_per_s = 1e12, .bytes_per_s = 1e11};
  const auto points = bench_sharded(options);
  for (std::size_t i = 1; i < points.size(); ++i)
    EXPECT_LT(*points[i].step_seconds, *points[i - 1].step_seconds) << points[i].strategy;
}

ShardedPoint timed(const char* strategy, const char* link, double seconds) {
  ShardedPoint point{.strategy = strategy, .link = link, .ranks = 8};
  point.step_seconds = seconds;
  return point;
}

TEST(ShardedCrossovers, LieBetweenTheSpeedsWhereTheFasterOneChanges) {
  const auto found = crossovers(
      {timed("ddp", "alpha=0s,beta=1GB/s", 1), timed("ddp", "alpha=0s,beta=100GB/s", 1),
       timed("zero-3", "alpha=0s,beta=100GB/s", 0.5), timed("zero-3", "alpha=0s,beta=1GB/s", 2),
       timed("zero-2", "alpha=0s,beta=1GB/s", 3), timed("zero-2", "alpha=0s,beta=100GB/s", 2)});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].strategy, "zero-3");
  EXPECT_EQ(found[0].reference, "ddp");
  EXPECT_NEAR(found[0].bytes_per_s, 1e10, 1);
  EXPECT_TRUE(found[0].is_faster_above);
}

TEST(ShardedBench, RefusesOrSkipsWhatDoesNotFit) {
  ShardedBenchOptions options = small(ShardedMode::count);
  options.strategies = {"zero-4"};
  EXPECT_THROW(bench_sharded(options), Error);
  options.strategies = {"tp"};
  options.ranks = {3};
  EXPECT_THAT(bench_sharded(options).front().skipped, HasSubstr("3 tensor-parallel ranks"));
}

TEST(ShardedPoint, NamesWhatDiffers) {
  ShardedPoint point;
  point.expected_sent_bytes = {{"gradients", 4}, {"norm", 8}};
  point.sent_bytes = {{"gradients", 4}, {"norm", 9}, {"else", 1}};
  point.expected_peak_bytes = {{"optimizer", 3}};
  EXPECT_THAT(point.differences(), testing::ElementsAre("sent bytes of norm 9 instead of 8",
                                                        "sent bytes of else 1 instead of none",
                                                        "peak bytes of optimizer 0 instead of 3"));
}

}  // namespace
}  // namespace lockstep
