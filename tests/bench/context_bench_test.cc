// The benchmark of context parallelism: counts, the limit of compute, crossovers, masks, and errors.
#include "bench/techniques/context.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "bench/techniques/context_error.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

ContextBenchOptions small_context() {
  ContextBenchOptions options;
  options.simulates = true;
  options.train.steps = 2;
  options.methods = context_methods();
  options.lengths = {16};
  options.repetitions = 1;
  return options;
}

const ContextPoint& point_of(const std::vector<ContextPoint>& points, const std::string& method) {
  return *std::ranges::find(points, method, &ContextPoint::method);
}

// Training counts on this machine, a simulation without data: they agree, and with the closed forms.
TEST(ContextBench, CountsTheSameTrainedAndSimulated) {
  ContextBenchOptions trains = small_context();
  trains.simulates = false;
  trains.train.data = testing::TempDir() + "context_bench_text";
  std::ofstream(trains.train.data) << std::string(4096, 'a') + "b";
  const auto trained = bench_context(trains), simulated = bench_context(small_context());
  ASSERT_EQ(trained.size(), context_methods().size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const ContextPoint &real = trained[i], &virtual_time = simulated[i];
    SCOPED_TRACE(real.method);
    EXPECT_EQ(real.skipped, "");
    EXPECT_EQ(real.sent_bytes, virtual_time.sent_bytes);
    EXPECT_EQ(real.sent_bytes, real.expected_sent_bytes);
    EXPECT_EQ(real.pairs, virtual_time.pairs);
    EXPECT_EQ(real.pairs, real.expected_pairs);
    EXPECT_EQ(real.pairs.size(), real.ranks == 1 ? 0U : 4U);
    for (const char* use : {"parameters", "activations", "communication"}) {
      EXPECT_EQ(real.peak_bytes.at(use), virtual_time.peak_bytes.at(use)) << use;
      EXPECT_EQ(real.peak_bytes.at(use), real.expected_peak_bytes.at(use)) << use;
    }
    EXPECT_GT(real.step_seconds, 0);
    EXPECT_NEAR(real.tokens_per_second * real.step_seconds, 16, 1e-9);
    EXPECT_EQ(exchanged_bytes(real.sent_bytes) > 0, real.ranks > 1);
    EXPECT_EQ(real.scores_bytes, real.ranks == 1 ? 4.0 * 4 * 16 * 16 * 4 : 0);
  }
}

// A block of the ring is 2 N k d elements; f32 sends it c - 1 times forward, and twice so backward.
TEST(ContextBench, RingsSendEveryBlockThreeTimesToEachOtherRank) {
  ContextBenchOptions options = small_context();
  options.kv_heads = {1, 2, 4};
  options.methods = {"ring-striped", "ulysses"};
  for (const ContextPoint& p : bench_context(options)) {
    constexpr int layers = 4, tokens = 16 / 4, head_size = 128 / 4, bytes = 4, statistic = 1;
    const int ring = 3 * (4 - 1) * 2 * tokens * p.kv_heads * head_size;
    // Each of 4 ranks has a query head and a key/value head, and returns the gradients of the
    // latter.
    const int ulysses = 3 * tokens * (2 * 4 * head_size + statistic);
    EXPECT_EQ(exchanged_bytes(p.sent_bytes),
              layers * bytes * (p.method == "ulysses" ? ulysses : ring))
        << p.method << " " << p.kv_heads;
  }
}

// If nothing but attention takes time, a step takes that of the busiest rank: no layout waits more.
TEST(ContextBench, AttentionAloneTakesTheTimeOfTheMostPairs) {
  ContextBenchOptions options = small_context();
  options.methods.insert(options.methods.end(), {"ulysses-3-ring"});
  options.ranks = {2, 3, 6};
  options.heads = {4};
  options.kv_heads = {4, 2};
  options.lengths = {48};
  int compared = 0;
  for (const ContextPoint& p : bench_context(options)) {
    if (!p.skipped.empty() || p.ranks == 1) continue;
    SCOPED_TRACE(fmt::format("{} on {}, {} of keys and values", p.method, p.ranks, p.kv_heads));
    EXPECT_NEAR(*p.attention_seconds / *p.expected_attention_seconds, 1, 1e-9);
    EXPECT_GE(p.step_seconds, *p.attention_seconds);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

// Of c ranks with n tokens each, the last contiguous one has (c - 1/2) n^2 + n / 2 pairs, and each
// zig-zag one c n^2 / 2 + n / 2.
TEST(ContextBench, ZigZagApproachesTheLimit) {
  ContextBenchOptions options = small_context();
  options.methods = {"ring-contiguous", "ring-zig-zag"};
  options.ranks = {2, 4, 8};
  options.lengths = {64, 4096};
  const std::vector<ContextLimit> limits = context_limits(bench_context(options));
  ASSERT_EQ(limits.size(), 6U);
  for (const ContextLimit& l : limits) {
    SCOPED_TRACE(fmt::format("{} ranks, {} tokens", l.ranks, l.length));
    const double c = l.ranks, n = l.length / c;
    EXPECT_NEAR(l.measured, ((c - 0.5) * n + 0.5) / (c * n / 2 + 0.5), 1e-9);
    EXPECT_NEAR(l.expected, l.measured, 1e-9);
    EXPECT_DOUBLE_EQ(l.limit, (2 * c - 1) / c);
    EXPECT_LT(l.measured, l.limit);
    EXPECT_NEAR(l.measured, l.limit, 1 / n);
  }
}

// Where attention takes nearly all the time, the whole step also approaches the limit.
TEST(ContextBench, LongStepsApproachTheLimit) {
  ContextBenchOptions options = small_context();
  options.methods = {"ring-contiguous", "ring-zig-zag"};
  options.lengths = {1 << 18};
  options.links = {"free"};
  const std::vector<ContextLimit> limits = context_limits(bench_context(options));
  ASSERT_EQ(limits.size(), 1U);
  EXPECT_NEAR(limits[0].of_step, 7.0 / 4, 0.05);
  EXPECT_NEAR(limits[0].measured, 7.0 / 4, 1e-5);
}

ContextPoint exchanging(const char* method, int ranks, const char* link, std::int64_t bytes,
                        double seconds) {
  ContextPoint point;
  point.method = method;
  point.ranks = ranks;
  point.link = link;
  point.sent_bytes = {{"keys and values", bytes}, {"gradients", 1000}};
  point.step_seconds = seconds;
  return point;
}

TEST(ContextCrossovers, LieBetweenThePointsWhereTheSmallerOneChanges) {
  const char *slow = "alpha=0s,beta=1GB/s", *fast = "alpha=0s,beta=100GB/s";
  const auto found = context_crossovers(
      {exchanging("ring-zig-zag", 4, slow, 100, 1), exchanging("ulysses", 4, slow, 200, 2),
       exchanging("ring-zig-zag", 16, slow, 200, 1), exchanging("ulysses", 16, slow, 100, 3),
       exchanging("ring-zig-zag", 16, fast, 200, 1),
       exchanging("ulysses", 16, fast, 100, 1.0 / 3)});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].quantity, "bytes");
  EXPECT_EQ(found[0].over, "ranks");
  EXPECT_NEAR(found[0].at, 8, 1e-9);
  EXPECT_TRUE(found[0].ulysses_is_less_above);
  EXPECT_EQ(found[1].quantity, "seconds");
  EXPECT_EQ(found[1].over, "link");
  EXPECT_EQ(found[1].ranks, 16);
  EXPECT_NEAR(found[1].at, 1e10, 10);
  EXPECT_TRUE(found[1].ulysses_is_less_above);
}

TEST(ContextMasks, GiveEveryTokenToARankAndCountAllPairs) {
  for (const int ranks : {2, 3, 8})
    for (const ContextMask& mask : context_masks(ranks)) {
      SCOPED_TRACE(fmt::format("{} on {}", mask.layout, ranks));
      const auto length = static_cast<std::int64_t>(mask.owners.size());
      std::vector<std::int64_t> pairs(static_cast<std::size_t>(ranks));
      for (std::int64_t query = 0; query < length; ++query)
        pairs[static_cast<std::size_t>(mask.owners[static_cast<std::size_t>(query)])] += query + 1;
      EXPECT_EQ(mask.pairs, pairs);
      EXPECT_EQ(std::reduce(pairs.begin(), pairs.end()), length * (length + 1) / 2);
      const bool is_even = *std::ranges::min_element(pairs) == *std::ranges::max_element(pairs);
      EXPECT_EQ(is_even, mask.layout == "zig-zag");
    }
}

TEST(ContextBench, RefusesOrSkipsWhatDoesNotFit) {
  ContextBenchOptions options = small_context();
  for (const char* name :
       {"ring", "ulysses-0-ring", "ulysses-x-ring", "ulysses--ring", "ulysses-ring"}) {
    options.methods = {name};
    EXPECT_THROW(bench_context(options), Error) << name;
  }
  options.ranks = {8};
  options.methods = {"ulysses", "ulysses-4-ring", "ulysses-8-ring", "ring-zig-zag"};
  options.lengths = {24};
  const auto points = bench_context(options);
  EXPECT_THAT(point_of(points, "ulysses").skipped, HasSubstr("8"));
  EXPECT_THAT(point_of(points, "ulysses-8-ring").skipped, HasSubstr("use more ranks"));
  EXPECT_NE(point_of(points, "ring-zig-zag").skipped, "");  // not a multiple of 16
  EXPECT_NE(point_of(points, "ulysses-4-ring").exposed_seconds, 0);
}

// With sums in f32 the error is that of rounding the result; in bf16 it grows with the ring.
TEST(ContextErrors, GrowWithTheRingOnlyIfSumsAreRounded) {
  ContextErrorOptions options;
  options.shape = {
      .sequences = 1, .length = 256, .heads = 2, .head_size = 16, .kv_heads = 1, .documents = {}};
  options.ranks = {1, 4, 32};
  std::map<std::string, std::vector<ContextError>> by_accumulation;
  for (const ContextError& e : measure_context_errors(options))
    by_accumulation[e.accumulation].push_back(e);
  const auto &f32 = by_accumulation.at("f32"), &bf16 = by_accumulation.at("bf16");
  ASSERT_EQ(f32.size(), 3U);
  ASSERT_EQ(bf16.size(), 3U);
  // Half of a unit in the last of 8 bits, if evenly distributed, is 2^-9 / sqrt(3) of the number's
  // power of 2.
  for (const ContextError& e : f32) {
    EXPECT_NEAR(e.of_output, f32[0].of_output, 0.01 * f32[0].of_output) << e.ranks;
    EXPECT_NEAR(e.of_gradients, f32[0].of_gradients, 0.01 * f32[0].of_gradients) << e.ranks;
    EXPECT_GT(e.of_output, 1e-3);
    EXPECT_LT(e.of_gradients, 2e-3);
  }
  EXPECT_EQ(bf16[0].of_output, f32[0].of_output);
  for (std::size_t i = 1; i < bf16.size(); ++i) {
    EXPECT_GT(bf16[i].of_output, 1.1 * bf16[i - 1].of_output);
    EXPECT_GT(bf16[i].of_gradients, 1.3 * bf16[i - 1].of_gradients);
  }
}

}  // namespace
}  // namespace lockstep
