// The benchmark of dispatchers: bytes and times against formulas written out here, the crossing of two
// levels and the direct way on both sides of it, draws of experts, and the price of skew.
#include "bench/techniques/moe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/techniques/counted_ranks.h"
#include "bench/techniques/moe_choices.h"
#include "bench/techniques/moe_pairs.h"
#include "collectives/base/error.h"
#include "parallel/plan/expert_choices.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

MoeBenchOptions small_moe() {
  MoeBenchOptions options;
  options.ranks = {8};
  options.per_token = {2};
  options.tokens = {128};
  options.experts = 16;
  options.width = 64;
  return options;
}

// Nodes of `places` ranks with a latency of so many seconds between them.
std::string link_between(int places, double latency_s) {
  return fmt::format("alpha={:.17g}us,beta=20GB/s,node={},node-alpha=1us,node-beta=80GB/s",
                     1e6 * latency_s, places);
}

const MoePoint& of_method(const std::vector<MoePoint>& points, const std::string& method,
                          const std::string& skew = "even") {
  const auto found = std::ranges::find_if(
      points, [&](const MoePoint& p) { return p.method == method && p.skew == skew; });
  EXPECT_NE(found, points.end()) << method;
  EXPECT_EQ(found->skipped, "");
  return *found;
}

// Two levels are faster exactly above a latency between nodes of the time of a pair's bytes inside: the
// links between nodes make no difference.
TEST(MoeBench, TwoLevelsWinExactlyAboveTheirLatency) {
  for (const auto& [ranks, places] : {std::pair(4, 2), {8, 2}, {8, 4}, {16, 4}}) {
    MoeBenchOptions options = small_moe();
    options.ranks = {ranks};
    options.methods = {"all_to_all", "two_level"};
    const double pair_bytes = 128.0 * 2 * 64 * 2 / ranks, crossing = pair_bytes / 80e9;
    const auto lead = [&](double latency_s) {  // of two levels
      options.links = {link_between(places, latency_s)};
      const std::vector<MoePoint> points = bench_moe(options);
      return of_method(points, "all_to_all").dispatch_seconds -
             of_method(points, "two_level").dispatch_seconds;
    };
    EXPECT_GT(lead(crossing * 1.0001), 0);
    EXPECT_LT(lead(crossing * 0.9999), 0);
    EXPECT_NEAR(lead(crossing), 0, 1e-15);
    // As steep as so many messages between nodes are fewer.
    const int fewer = (ranks / places - 1) * (places - 1);
    EXPECT_NEAR(lead(crossing + 1e-3), fewer * 1e-3, 1e-12);
  }
}

TEST(MoeBench, FindsTheCrossingBetweenItsPoints) {
  MoeBenchOptions options = small_moe();
  options.tokens = {128, 256};
  options.links = {link_between(4, 1e-8), link_between(4, 1e-5)};
  const std::vector<MoeCrossover> found = moe_crossovers(bench_moe(options), options);
  int over_latency = 0;
  for (const MoeCrossover& c : found) {
    if (c.over != "latency" || c.method != "two_level") continue;
    const double expected = c.tokens * 2 * 64 * 2 / 8.0 / 80e9;
    EXPECT_NEAR(c.at / expected, 1, 1e-9);
    EXPECT_NEAR(c.expected.value() / expected, 1, 1e-12);
    EXPECT_TRUE(c.is_faster_above);
    ++over_latency;
  }
  EXPECT_EQ(over_latency, 2);
}

TEST(MoeBench, SendsWhatTheFormulasSay) {
  MoeBenchOptions options = small_moe();
  options.links = {link_between(4, 1e-6)};
  options.skews = {"even", "zipf:1"};
  const std::vector<MoePoint> points = bench_moe(options);
  constexpr std::int64_t row = 64 * 2, rows = 128 * 2;
  const auto expect = [&](const char* method, std::int64_t bytes, std::int64_t messages) {
    const MoePoint& p = of_method(points, method);
    EXPECT_EQ(p.sent_bytes, bytes * row) << method;
    EXPECT_EQ(p.mean_sent_bytes, bytes * row) << method;
    EXPECT_EQ(p.messages, messages) << method;
    EXPECT_TRUE(p.expected_dispatch_seconds) << method;
  };
  expect("all_to_all", rows * 7 / 8, 7);
  expect("two_level", rows * 3 / 4 + rows / 2, 3 + 1);
  expect("deduplicated", rows * 7 / 8, 7);  // a token's experts are on different ranks
  expect("all_gather", 7 * 128, 7);
  // 1.25 times the mean of 16 tokens, for two experts.
  expect("padded", 7 * 2 * 20, 7);
  EXPECT_EQ(of_method(points, "padded", "zipf:1").sent_bytes, 7 * 2 * 20 * row);
  EXPECT_GT(of_method(points, "padded", "zipf:1").dropped_share, 0.1);
  EXPECT_EQ(of_method(points, "padded").dropped_share, 0);
  const MoePoint& skewed = of_method(points, "all_to_all", "zipf:1");
  EXPECT_GT(skewed.sent_bytes, skewed.mean_sent_bytes);
  EXPECT_FALSE(skewed.expected_dispatch_seconds);
}

TEST(MoeBench, SkewCostsNothingIfMessagesAreEqual) {
  MoeBenchOptions options = small_moe();
  options.links = {link_between(4, 1e-6)};
  options.skews = {"zipf:2", "even"};
  options.width = 4096;
  std::map<std::string, double> times;
  for (const MoePrice& price : prices_of_skew(bench_moe(options))) {
    EXPECT_EQ(price.skew, "zipf:2");
    times[price.method] = price.times;
  }
  EXPECT_EQ(times.size(), moe_methods().size());
  EXPECT_DOUBLE_EQ(times.at("padded"), 1);
  EXPECT_DOUBLE_EQ(times.at("all_gather"), 1);
  for (const char* method : {"all_to_all", "two_level"}) EXPECT_GT(times.at(method), 1.5) << method;
  EXPECT_LT(times.at("deduplicated"), times.at("all_to_all"));
}

// A token has experts on P (1 - C(E - E/P, K) / C(E, K)) ranks on average, if it draws uniformly.
TEST(MoeChoices, ReachAsManyRanksAsTheirFormula) {
  for (const auto& [experts, ranks, per_token, expected] :
       {std::tuple(16, 4, 4, 2.91), {8, 4, 2, 1.857}, {256, 8, 8, 5.29}}) {
    const int tokens = 4000;
    const MoeChoices drawn =
        choices_of_rank(moe_skew("zipf:0"), 3, ranks, experts, per_token, tokens, 1);
    const auto all = static_cast<double>(std::reduce(drawn.ranks.begin(), drawn.ranks.end()));
    EXPECT_NEAR(all / tokens, expected, 0.03);
    EXPECT_EQ(std::reduce(drawn.experts.begin(), drawn.experts.end()), Count{tokens} * per_token);
    const auto [least, most] = std::ranges::minmax(drawn.experts);
    EXPECT_GT(least, 0.6 * tokens * per_token / experts);
    EXPECT_LT(most, 1.4 * tokens * per_token / experts);
  }
}

TEST(MoeChoices, FollowTheirWeights) {
  // One draw each: expert e has a share of 1 / (e + 1) over 1 + 1/2 + 1/3 + 1/4.
  const MoeChoices drawn = choices_of_rank(moe_skew("zipf:1"), 0, 2, 4, 1, 20000, 7);
  for (int e = 0; e < 4; ++e)
    EXPECT_NEAR(static_cast<double>(drawn.experts[static_cast<std::size_t>(e)]) / 20000,
                1 / ((e + 1) * (1 + 0.5 + 1.0 / 3 + 0.25)), 0.01);
  // All experts, of all: each once.
  const MoeChoices whole = choices_of_rank(moe_skew("zipf:3"), 1, 2, 4, 4, 10, 7);
  EXPECT_EQ(whole.experts, std::vector<Count>(4, 10));
  EXPECT_EQ(whole.ranks, std::vector<Count>(2, 10));
}

// Predictions draw the same experts for the rank's tokens.
TEST(MoeChoices, AreThoseOfPredictions) {
  GptConfig model;
  model.experts = {.number = 16, .per_token = 2};
  const auto predicted = expert_choices("zipf:1.2", model, 5);
  for (const int rank : {0, 3, 7})
    EXPECT_EQ(predicted->counts(0, {rank, 8}, 100),
              choices_of_rank(moe_skew("zipf:1.2"), rank, 8, 16, 2, 100, 5).experts);
}

TEST(MoeBench, SaysWhatItSkipsAndRefuses) {
  MoeBenchOptions options = small_moe();
  options.ranks = {3, 4};
  options.methods = {"two_level"};
  options.links = {"alpha=1us,beta=20GB/s,node=3,node-alpha=1us,node-beta=80GB/s"};
  const std::vector<MoePoint> points = bench_moe(options);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_THAT(points[0].skipped, HasSubstr("3 ranks cannot divide 16 experts"));
  EXPECT_THAT(points[1].skipped, HasSubstr("two_level needs"));
  options.tokens = {100};
  options.links = {"ndr"};
  EXPECT_THAT(bench_moe(options)[1].skipped, HasSubstr("100 tokens cannot choose 16 experts"));
  const auto expect_refusal = [](auto set, const char* said) {
    MoeBenchOptions wrong = small_moe();
    set(wrong);
    try {
      bench_moe(wrong);
      ADD_FAILURE() << said;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  };
  expect_refusal([](MoeBenchOptions& o) { o.methods = {"ring"}; }, "no method 'ring'; choose");
  for (const char* skew : {"zipf", "zipf:", "zipf:-1", "zipf:1x", "odd"})
    expect_refusal([&](MoeBenchOptions& o) { o.skews = {skew}; }, "use even, or zipf:Z");
}

// Steps in turns never take longer than one by one, and equally long only where ranks never wait for rows.
TEST(MoeBench, PairsInTurnsAreFasterWhereRowsTakeTime) {
  MoeBenchOptions options = small_moe();
  options.ranks = {4};
  options.width = 256;
  options.skews = {"even", "zipf:1"};
  options.links = {"free", "alpha=5us,beta=20GB/s"};
  MoePairOptions pairs;
  pairs.expert_width = 256;
  pairs.roofline = {.flops_per_s = 20e12, .bytes_per_s = 1e12};
  for (const int pipeline_ranks : {1, 2}) {
    pairs.pipeline_ranks = pipeline_ranks;
    pairs.layers = 4 * pipeline_ranks;
    const std::vector<MoePairPoint> points = bench_moe_pairs(options, pairs, nullptr);
    ASSERT_EQ(points.size(), 2U * 2);
    for (const MoePairPoint& p : points) {
      SCOPED_TRACE(fmt::format("{} ranks, {}, {}", p.ranks, p.skew, p.link));
      EXPECT_EQ(p.skipped, "");
      EXPECT_EQ(p.tokens_of_step, Count{p.ranks} * 8 * 128);
      EXPECT_GT(p.in_turns.peak_bytes, p.one_by_one.peak_bytes);
      if (p.link == "free") {
        // The sums of the passes' times are rounded in another order.
        constexpr double rounding = 1e-12;
        EXPECT_LE(p.in_turns.seconds / p.one_by_one.seconds, 1 + rounding);
        if (p.skew != "even") continue;  // ranks wait for the busiest one's experts
        EXPECT_NEAR(p.in_turns.seconds / p.one_by_one.seconds, 1, rounding);
        EXPECT_EQ(p.one_by_one.exposed_seconds, 0);
        continue;
      }
      EXPECT_LT(p.in_turns.seconds, p.one_by_one.seconds);
      EXPECT_LT(p.in_turns.exposed_seconds, p.one_by_one.exposed_seconds);
      EXPECT_GT(p.in_turns.exposed_seconds, 0);
    }
  }
}

// Without the time of messages, a pass takes as long in turns as alone.
TEST(MoeBench, PassesOfPairsHaveTheTimesOfTheirTurns) {
  TrainOptions train = default_options("moe");
  train.model = "nano-moe";
  train.mesh_lengths[Axis::pp] = 2;
  train.schedule = "dualpipe-v";
  train.micro_batches = 5;
  train.global_batch = 10;
  const Roofline roofline{.flops_per_s = 1e9, .bytes_per_s = 1e9};
  const std::vector<CountedRank> alone = simulate_ranks(plan_of(train, 4), roofline, "free");
  train.overlap_pairs = true;
  const std::vector<CountedRank> in_turns = simulate_ranks(plan_of(train, 4), roofline, "free");
  for (std::size_t rank = 0; rank < alone.size(); ++rank) {
    ASSERT_EQ(in_turns[rank].passes.size(), alone[rank].passes.size());
    for (std::size_t i = 0; i < alone[rank].passes.size(); ++i)
      EXPECT_NEAR(in_turns[rank].passes[i], alone[rank].passes[i], 1e-9) << rank << ", " << i;
  }
}

TEST(MoeBench, SaysWhyStepsHaveNoPairs) {
  MoeBenchOptions options = small_moe();
  options.ranks = {2};
  MoePairOptions pairs;
  pairs.micro_batches = 3;
  EXPECT_THAT(bench_moe_pairs(options, pairs, nullptr).at(0).skipped,
              HasSubstr("dualpipe-v on 2 ranks with 3 micro-batches"));
  options.width = 100;
  EXPECT_THAT(bench_moe_pairs(options, {}, nullptr).at(0).skipped, HasSubstr("--width 100"));
}

}  // namespace
}  // namespace lockstep
