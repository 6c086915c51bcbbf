// The benchmark of factorings: one rank of each kind takes the time of all ranks, steps are the sums of
// their parts, and the text names the most expensive part.
#include "bench/techniques/factorings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/techniques/counted_ranks.h"
#include "collectives/base/error.h"
#include "parallel/plan/make_plan.h"
#include "parallel/plan/symmetry.h"
#include "parallel/predict/predict.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using enum Axis;

// Every size divides by 8: all ranks along an axis have equal work.
GptConfig even_model() {
  return {.layers = 8, .heads = 8, .width = 64, .context = 64, .vocabulary = 128};
}

TrainOptions mesh_options(int t, int c, int p, int d) {
  TrainOptions options;
  options.technique = "3d";
  options.mesh_lengths[Axis::tp] = t, options.mesh_lengths[Axis::cp] = c;
  options.mesh_lengths[Axis::pp] = p, options.mesh_lengths[Axis::dp] = d;
  options.global_batch = 4 * d;
  options.micro_batches = 4;
  return options;
}

Plan even_plan(const TrainOptions& options) {
  return plan_of(options,
                 *options.mesh_lengths[Axis::tp] * *options.mesh_lengths[Axis::cp] *
                     *options.mesh_lengths[Axis::pp] * *options.mesh_lengths[Axis::dp],
                 even_model());
}

const Roofline slow = {.flops_per_s = 1e11, .bytes_per_s = 1e10};
constexpr const char* flat = "alpha=2us,beta=1GB/s";
constexpr const char* nodes = "alpha=20us,beta=0.5GB/s,node=4,node-alpha=1us,node-beta=5GB/s";

// The slowest rank, and what its kind counted, as on all ranks.
void expect_same(const TrainOptions& options, const char* link, std::size_t kinds,
                 double tolerance = 1e-12) {
  const Plan plan = even_plan(options);
  const std::vector<CountedRank> all = simulate_ranks(plan, slow, link),
                                 few = simulate_kinds_of_ranks(plan, slow, link);
  EXPECT_EQ(few.size(), kinds);
  EXPECT_NEAR(slowest(few) / slowest(all), 1, tolerance);
  // Ranks end at different times because one of them counts the parameters that all have, and the
  // others wait for its part of the norm.
  const double norm = 0.001 * slowest(all);
  for (const CountedRank& rank : few) {
    const CountedRank& same = all[static_cast<std::size_t>(rank.record.rank)];
    EXPECT_EQ(rank.record.peak_bytes, same.record.peak_bytes);
    EXPECT_EQ(rank.record.traffic.size(), same.record.traffic.size());
    for (const auto& [label, volume] : same.record.traffic)
      EXPECT_EQ(rank.record.traffic.at(label), volume) << label;
    EXPECT_NEAR(rank.exposed.sum(), same.exposed.sum(), norm);
    EXPECT_NEAR(rank.compute_seconds, same.compute_seconds, 1e-12);
    // Without stages, a rank computes or waits.
    if (plan.length(pp) == 1 && options.slow_ranks.empty()) {
      EXPECT_NEAR((rank.compute_seconds + rank.exposed.sum()) / rank.seconds, 1, 1e-9);
    }
  }
  // Those in whose place it runs take the same time.
  const std::vector<int> stand_in = stand_ins(plan, parse_links(link));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    EXPECT_NEAR(all[rank].seconds, all[static_cast<std::size_t>(stand_in[rank])].seconds, norm)
        << rank;
}

// A simulated step is counted like a step of a training run.
TEST(SimulatedRanks, CountWhatTheyOffload) {
  TrainOptions options = mesh_options(1, 1, 1, 2);
  options.zero_stage = 2;
  options.offload = "optimizer";
  const Plan plan = even_plan(options);
  for (const CountedRank& rank : simulate_ranks(plan, slow, flat)) {
    EXPECT_GT(rank.record.offload.read_bytes, 0);
    EXPECT_EQ(rank.record.offload, predict(plan, rank.record.rank).offload);
  }
}

TEST(KindsOfRanks, TakeTheTimeOfAllRanks) {
  for (const auto& [t, c, p, d] : {std::array{4, 1, 1, 1},
                                   {1, 4, 1, 1},
                                   {1, 1, 4, 1},
                                   {1, 1, 1, 4},
                                   {2, 2, 2, 2},
                                   {4, 1, 2, 2}}) {
    SCOPED_TRACE(fmt::format("tp {}, cp {}, pp {}, dp {}", t, c, p, d));
    expect_same(mesh_options(t, c, p, d), flat, static_cast<std::size_t>(p));
  }
  // Buckets of gradients in thirds: chunks differ by one element.
  expect_same(mesh_options(1, 1, 2, 3), flat, 2, 1e-5);
  expect_same(mesh_options(2, 1, 4, 3), flat, 4, 1e-5);
}

TEST(KindsOfRanks, TakeTheTimeOfAllRanksWithEveryOption) {
  const auto with = [](const auto& change) {
    TrainOptions options = mesh_options(2, 2, 2, 2);
    change(options);
    expect_same(options, flat, 2);
  };
  with([](TrainOptions& o) { o.sequence_parallel = true; });
  with([](TrainOptions& o) { o.sequence_parallel = o.tensor_overlap = true; });
  with([](TrainOptions& o) { o.zero_stage = 1; });
  with([](TrainOptions& o) { o.zero_stage = 3, o.overlap = false; });
  with([](TrainOptions& o) { o.ring_ranks = 2, o.recompute = "full"; });
  with([](TrainOptions& o) { o.schedule = "interleaved", o.virtual_stages = 2; });
  with([](TrainOptions& o) { o.schedule = "zb-h1", o.dtype = DType::bf16; });
}

// On nodes of 4 ranks: groups inside a node, groups across nodes, and groups of both kinds, for which
// a whole node of each stage runs.
TEST(KindsOfRanks, FollowTheLinksOfTheNodes) {
  expect_same(mesh_options(4, 1, 2, 2), nodes, 2);
  expect_same(mesh_options(2, 1, 2, 2), nodes, 2);
  expect_same(mesh_options(2, 1, 1, 8), nodes, 4);
  expect_same(mesh_options(2, 2, 2, 4), nodes, 2 * 4);
  expect_same(mesh_options(8, 1, 1, 2), nodes, 4);
  expect_same(mesh_options(1, 1, 2, 16), nodes, 2 * 4);
}

// Ranks that differ all run.
TEST(KindsOfRanks, AreAllRanksWithoutSymmetry) {
  TrainOptions uneven = mesh_options(1, 1, 1, 3);
  uneven.global_batch = 13;
  expect_same(uneven, flat, 3);
  TrainOptions contiguous = mesh_options(1, 4, 1, 1);
  contiguous.layout = "contiguous";
  expect_same(contiguous, flat, 4);
  TrainOptions exchanging = mesh_options(1, 4, 1, 1);
  exchanging.ulysses_ranks = 4;
  expect_same(exchanging, flat, 4);
  TrainOptions unpaired = mesh_options(1, 1, 1, 3);
  unpaired.zero_stage = 1;
  expect_same(unpaired, flat, 3);
  expect_same(mesh_options(2, 1, 3, 1), flat, 6);
  TrainOptions linear = mesh_options(1, 1, 1, 4);
  linear.algorithm = "linear";
  expect_same(linear, flat, 4);
  linear.algorithm = "linear+pairwise";
  linear.zero_stage = 2;
  expect_same(linear, flat, 4);
  TrainOptions slow_rank = mesh_options(1, 1, 1, 2);
  slow_rank.slow_ranks = {{1, 2.0}};
  expect_same(slow_rank, flat, 2);
}

FactoringBenchOptions small_bench() {
  FactoringBenchOptions options;
  options.ranks = {8};
  options.train.model = "nano";
  options.train.global_batch = 16;
  options.link = nodes;
  options.tensor = options.context = {1, 2, 4, 8};
  options.roofline = slow;
  return options;
}

TEST(FactoringBench, ComparesAllFactoringsAndSaysWhichHaveNoPlan) {
  const std::vector<Factoring> all = bench_factorings(small_bench());
  EXPECT_EQ(all.size(), 20U) << "8 = 2^3 over four axes";
  std::set<std::string> names;
  double before = 0;
  for (const Factoring& f : all) {
    SCOPED_TRACE(f.name());
    names.insert(f.name());
    EXPECT_EQ(f.lengths[tp] * f.lengths[cp] * f.lengths[pp] * f.lengths[dp], 8);
    // nano has 4 layers and 4 heads.
    EXPECT_EQ(f.refused.empty(), f.lengths[tp] <= 4 && f.lengths[pp] <= 4);
    if (!f.refused.empty()) {
      EXPECT_THAT(
          f.refused,
          HasSubstr(f.lengths[tp] == 8 ? "8 tensor-parallel ranks for 4 heads"
                                       : "8 pipeline stages are more than the model's 4 layers"));
      continue;
    }
    EXPECT_GE(f.step_seconds, before);
    before = f.step_seconds;
    EXPECT_NEAR(f.parts.sum() / f.step_seconds, 1, 1e-12);
    EXPECT_EQ(f.parts.bubble > 0, f.lengths[pp] > 1);
    EXPECT_EQ(f.parts.tp > 0, f.lengths[tp] > 1);
    EXPECT_EQ(f.parts.cp > 0, f.lengths[cp] > 1);
    EXPECT_EQ(f.parts.dp > 0, f.lengths[cp] * f.lengths[dp] > 1);
    EXPECT_EQ(f.micro_batches, 16 / f.lengths[dp]);
  }
  EXPECT_EQ(names.size(), all.size());
}

// Free messages and equal stages leave the closed form of the schedule's bubble, (p - 1) / (m + p - 1).
TEST(FactoringBench, FreeMessagesLeaveTheBubble) {
  FactoringBenchOptions options = small_bench();
  options.link = "free";
  options.pipeline = {4};
  options.tensor = options.context = {1};
  // Nothing but attention takes time, and each stage has one layer.
  options.roofline.timed = Roofline::Timed::attention;
  options.roofline.bytes_per_s = 1e30;
  const std::vector<Factoring> all = bench_factorings(options);
  ASSERT_EQ(all.size(), 1U);
  const int p = 4, m = all[0].micro_batches;
  EXPECT_NEAR(all[0].parts.bubble / all[0].step_seconds, (p - 1.0) / (m + p - 1), 1e-6);
  EXPECT_NEAR(all[0].parts.pp / all[0].step_seconds, 0, 1e-6);
}

TEST(FactoringBench, ChoosesTheFastestThatFits) {
  FactoringBenchOptions options = small_bench();
  const std::vector<Factoring> all = bench_factorings(options);
  EXPECT_EQ(fastest(all, options), &all[0]);
  const auto least = std::ranges::min_element(all, {}, [](const Factoring& f) {
    return f.refused.empty() ? f.bytes() : std::int64_t{1} << 60;
  });
  options.memory_limit = least->bytes();
  EXPECT_EQ(fastest(all, options), &*least);
  options.memory_limit = least->bytes() - 1;
  EXPECT_EQ(fastest(all, options), nullptr);
}

Factoring made(int t, int p, double step, StepParts parts, std::int64_t activations) {
  Factoring factoring;
  factoring.lengths[tp] = t, factoring.lengths[pp] = p;
  factoring.step_seconds = step;
  factoring.parts = parts;
  factoring.peak_bytes = {{"activations", activations},
                          {"parameters", std::int64_t{1} << 30},
                          {"total", activations + (std::int64_t{1} << 30)}};
  return factoring;
}

TEST(FactoringBench, SaysWhyOthersAreNotChosen) {
  FactoringBenchOptions options;
  options.memory_limit = std::int64_t{3} << 30;
  const std::int64_t gib = std::int64_t{1} << 30;
  const Factoring chosen = made(8, 1, 1.0, {.compute = 0.8, .bubble = 0, .tp = 0.2}, gib);
  EXPECT_EQ(why_not(made(1, 8, 1.3, {.compute = 0.8, .bubble = 0.5}, gib), chosen, options),
            "300.000 ms slower (30.0 %): 500.000 ms more bubble, 200.000 ms less exposed "
            "communication along tp");
  EXPECT_EQ(
      why_not(made(1, 8, 1.4, {.compute = 0.79, .bubble = 0.11, .dp = 0.5}, gib), chosen, options),
      "400.000 ms slower (40.0 %): 500.000 ms more exposed communication along dp, 110.000 ms "
      "more bubble, 200.000 ms less exposed communication along tp");
  EXPECT_EQ(
      why_not(made(1, 8, 0.9, {.compute = 0.8, .dp = 0.1}, 4 * gib), chosen, options),
      "needs 5.00 GiB, 2.00 GiB more than a rank has: 4.00 GiB for activations, 3.00 GiB more "
      "than there");
}

TEST(FactoringBench, RestrictsTheAxes) {
  FactoringBenchOptions options = small_bench();
  const auto tried = [&] {
    std::set<std::pair<int, int>> lengths;
    for (const Factoring& f : bench_factorings(options))
      lengths.emplace(f.lengths[tp], f.lengths[cp]);
    return lengths;
  };
  using Lengths = std::set<std::pair<int, int>>;
  options.pipeline = {1};
  options.tensor = options.context = {};
  EXPECT_EQ(tried(), (Lengths{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}})) << "nodes of 4";
  options.tensor = {8};
  EXPECT_EQ(tried(), (Lengths{{8, 1}}));
  options.tensor = {2, 4};
  options.context = {2};
  EXPECT_EQ(tried(), (Lengths{{2, 2}, {4, 2}}));
  options.data = {3};
  EXPECT_THROW(bench_factorings(options), Error);
}

}  // namespace
}  // namespace lockstep
