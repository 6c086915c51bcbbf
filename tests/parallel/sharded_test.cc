// ZeRO and FSDP: equality with one rank, and traffic and memory compared with the closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "parallel/sharded/sharding.h"
#include "tests/parallel/sharded_runs.h"

namespace lockstep {
namespace {

using test::by_rows;
using test::expect_golden;
using test::fsdp;
using test::golden_run;
using test::run;
using test::zero;

std::vector<std::pair<std::string, TrainOptions>> variants() {
  std::vector<std::pair<std::string, TrainOptions>> all = {
      {"zero1", zero(1)},
      {"zero2", zero(2)},
      {"zero3", zero(3)},
      {"none", fsdp("none")},
      {"pre", fsdp("backward-pre", true)},
      {"post", fsdp("backward-post")},
      {"kept", fsdp("backward-pre", false, "no")},
  };
  for (const int stage : {1, 2}) {
    all.emplace_back("twice" + std::to_string(stage), zero(stage));
    all.back().second.zero_volume = "all-reduce";
  }
  all.emplace_back("serially", fsdp("backward-pre"));
  all.back().second.overlap = false;
  all.emplace_back("limited", fsdp("backward-pre", true));
  all.back().second.limit_all_gathers = 1;
  all.emplace_back("last", fsdp("backward-post"));
  all.back().second.prefetch_last_block = true;
  all.emplace_back("rows", by_rows("backward-pre", true));
  return all;
}

class Sharded : public testing::TestWithParam<int> {};

TEST_P(Sharded, EveryVariantEqualsTheGoldenRunAndItsClosedForms) {
  for (const auto& [name, options] : variants()) {
    SCOPED_TRACE(name);
    const TrainResult result = run(GetParam(), options);
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    EXPECT_GE(std::ssize(result.theory), 6 * GetParam());
    // With three ranks, batches are uneven, and the peak of activations is an estimate.
    for (const TheoryRecord& record : result.theory)
      EXPECT_TRUE(record.exact || GetParam() == 3) << record.quantity;
  }
  expect_golden(run(GetParam(), zero(0)), 1e-10);
}

// The same shards and rings: all variants have the same bits.
TEST_P(Sharded, EveryVariantHasTheSameWeights) {
  test::expect_same_weights(GetParam(), zero(3));
  const test::Folder folder;
  std::vector<double> first;
  for (auto [name, options] : variants()) {
    // These add in another order.
    if (options.zero_volume == "all-reduce" || options.sharding == "per-parameter") continue;
    options.save = folder.file(name + ".safetensors");
    run(GetParam(), options);
    const std::vector<double> weights = test::weights_of(options.save);
    if (first.empty()) first = weights;
    EXPECT_EQ(weights, first) << name;
  }
}

TEST_P(Sharded, AccumulatesMicroBatchesWithAndWithoutSynchronisation) {
  const int micro_batches = GetParam() > 2 ? 2 : 3;
  TrainOptions serial = golden_run("serial");
  serial.global_batch = GetParam() * micro_batches;
  serial.steps = 3;
  const TrainResult expected = run(1, serial);
  for (const char* accumulation : {"sync", "no-sync"})
    for (auto [name, options] : variants()) {
      options.micro_batches = micro_batches;
      options.global_batch = serial.global_batch;
      options.steps = serial.steps;
      options.accumulation = accumulation;
      SCOPED_TRACE(name + " " + accumulation);
      const TrainResult result = run(GetParam(), options);
      test::expect_same_steps(result, expected, 1e-10);
      EXPECT_TRUE(theory_holds(result));
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sharded,
                         testing::ValuesIn(LOCKSTEP_THOROUGH ? std::vector<int>{1, 2, 3, 4, 8}
                                                             : std::vector<int>{1, 3}));

struct ShardedMesh {
  const char* schedule;
  int tp, pp, dp;
  bool by_sequence;
};

// Under a pipeline the schedule's actions gather, free and reduce whole stages; tied copies of the
// embedding are summed first, and tensor-parallel ranks sum what they share afterwards.
TEST(ShardedMesh, EqualsTheGoldenRunAndItsClosedForms) {
  int runs = 0;
  for (const ShardedMesh& mesh :
       {ShardedMesh{"1f1b", 2, 2, 2, false}, ShardedMesh{"interleaved", 1, 2, 2, false},
        ShardedMesh{"zb-h1", 2, 2, 2, true}, ShardedMesh{"zb-v", 1, 2, 2, false},
        ShardedMesh{"gpipe", 2, 1, 2, true}, ShardedMesh{"1f1b", 2, 1, 2, true}})
    for (const int variant :
         LOCKSTEP_THOROUGH ? std::vector{1, 2, 3, 4} : std::vector{1 + runs % 4}) {
      const int stage = std::min(variant, 3);
      TrainOptions options = golden_run("3d");
      if (variant == 4) options.sharding = "per-parameter";
      options.schedule = mesh.schedule;
      options.mesh_lengths[Axis::tp] = mesh.tp;
      options.mesh_lengths[Axis::pp] = mesh.pp;
      options.mesh_lengths[Axis::dp] = mesh.dp;
      options.sequence_parallel = mesh.by_sequence;
      options.zero_stage = stage;
      options.micro_batches = 4;
      options.steps = LOCKSTEP_THOROUGH ? 3 : 2;
      SCOPED_TRACE(std::string(mesh.schedule) + " stage " + std::to_string(stage) +
                   options.sharding);
      const TrainResult result = run(mesh.tp * mesh.pp * mesh.dp, options);
      expect_golden(result, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      for (const TheoryRecord& record : result.theory) EXPECT_TRUE(record.exact) << record.quantity;
      ++runs;
    }
  EXPECT_EQ(runs, LOCKSTEP_THOROUGH ? 24 : 6);
}

TEST(ShardedMesh, UnshardsAtMostThreeStages) {
  TrainOptions options = golden_run("3d");
  options.schedule = "interleaved";
  options.virtual_stages = 4;
  options.mesh_lengths[Axis::pp] = 2;
  options.mesh_lengths[Axis::dp] = 2;
  options.zero_stage = 3;
  options.micro_batches = 4;
  options.global_batch = 8;
  const TrainResult result = run(4, options);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  options.steps = 2;
  test::expect_same_weights(4, options);
}

TEST(ShardedMesh, NeedsUnshardInAScheduleFile) {
  const test::Folder folder;
  std::ofstream(folder.file("s.csv")) << "0F0,0B0,0REDUCE_GRAD\n";
  TrainOptions options = golden_run("3d");
  options.schedule_file = folder.file("s.csv");
  options.zero_stage = 3;
  EXPECT_THROW(plan_of(options, 2), Error);
  options.zero_stage = 2;
  EXPECT_NO_THROW(plan_of(options, 2));
}

// Hybrid sharding: replicas of the shards sum their gradients once a step.
TEST(HybridSharding, EqualsTheGoldenRunAndItsClosedForms) {
  TrainOptions serial = golden_run("serial");
  serial.global_batch = 12;
  serial.steps = LOCKSTEP_THOROUGH ? 3 : 2;
  const TrainResult expected = run(1, serial);
  int runs = 0;
  using Shapes = std::vector<std::pair<int, int>>;
  for (const auto& [ranks, replicas] :
       LOCKSTEP_THOROUGH ? Shapes{{4, 2}, {6, 2}, {6, 3}, {2, 2}} : Shapes{{4, 2}, {2, 2}})
    for (TrainOptions options :
         {zero(1), zero(2), fsdp("backward-pre"), fsdp("none", true), by_rows()}) {
      options.replicas = replicas;
      options.micro_batches = 2;
      options.global_batch = serial.global_batch;
      options.steps = serial.steps;
      options.overlap = ++runs % 3 != 0;
      const TrainResult result = run(ranks, options);
      test::expect_same_steps(result, expected, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      for (const RankRecord& rank : result.ranks)
        // Shards of each of the nine units differ by at most one element, or by a row of each
        // parameter.
        EXPECT_NEAR(static_cast<double>(rank.peak_bytes.at("optimizer")),
                    2.0 * 8 * 106304 * replicas / ranks,
                    2 * 8 * (options.sharding == "flat" ? 9 : 106304 / 24));
    }
  EXPECT_EQ(runs, LOCKSTEP_THOROUGH ? 20 : 10);
  TrainOptions mesh = golden_run("3d");
  mesh.mesh_lengths[Axis::tp] = 2;
  mesh.mesh_lengths[Axis::pp] = 1;
  mesh.mesh_lengths[Axis::dp] = 4;
  mesh.zero_stage = 3;
  mesh.replicas = 2;
  const TrainResult result = run(8, mesh);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  mesh.replicas = 3;
  EXPECT_THROW(plan_of(mesh, 8), Error);
}

// With two ranks, every sum has two terms, so its order does not matter.
TEST(ShardedBits, EqualDdpOnTwoRanks) {
  const test::Folder folder;
  std::vector<std::vector<double>> weights;
  for (TrainOptions options : {golden_run("ddp"), zero(1), zero(3), fsdp("none"), by_rows()}) {
    options.grad_clip = 0;  // the norm's sum has other terms
    options.save = folder.file("weights.safetensors");
    run(2, options);
    weights.push_back(test::weights_of(options.save));
  }
  for (std::size_t i = 1; i < weights.size(); ++i) EXPECT_EQ(weights[i], weights[0]) << i;
}

TEST(ShardedPrecision, SixteenBitsStayCloseAndFollowTheClosedForms) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (TrainOptions options : {zero(1), zero(2), fsdp("backward-pre"), by_rows()}) {
      options.dtype = dtype;
      const TrainResult result = run(4, options);
      expect_golden(result, dtype == DType::bf16 ? 1e-2 : 2e-3);
      EXPECT_TRUE(theory_holds(result));
      options.dtype = DType::f32;
      options.reduce_dtype = DType::bf16;
      const TrainResult rounded = run(2, options);
      expect_golden(rounded, 3e-3);
      EXPECT_TRUE(theory_holds(rounded));
    }
}

// A NaN enters one rank's gradients, wherever the exchange that carries it: all ranks skip that
// step, and no later one.
TEST(ShardedPrecision, OverflowOnOneRankSkipsTheStepOnEvery) {
  for (const TrainOptions& variant : {zero(1), zero(2), fsdp("backward-pre")})
    for (const int rank : LOCKSTEP_THOROUGH ? std::vector<int>{0, 1} : std::vector<int>{1}) {
      TrainOptions options = variant;
      options.dtype = DType::f16;
      options.loss_scaling = "torch";
      options.steps = 3;
      int once = 0;
      for (int operation = 0; operation < 24; operation += LOCKSTEP_THOROUGH ? 1 : 4) {
        const FaultPlan nan{.rank = rank, .operation = operation, .kind = FaultKind::nan};
        TrainResult result;
        try {
          result = run({.ranks = 2, .timeout_s = 20, .fault = nan}, options);
        } catch (const Error& error) {
          // The NaN was in the loss, or the operation sends no floating-point numbers.
          EXPECT_TRUE(error.kind() == ErrorKind::wrong_result ||
                      error.kind() == ErrorKind::bad_input)
              << error.what();
          continue;
        }
        if (std::ranges::count(result.steps, true, &StepRecord::skipped) != 1) continue;
        ++once;
        EXPECT_TRUE(std::isfinite(result.steps.back().loss));
        EXPECT_TRUE(theory_holds(result));
      }
      // Each of the nine units' gradients.
      EXPECT_GE(once, LOCKSTEP_THOROUGH ? 9 : 2)
          << options.technique << options.zero_stage.value_or(3) << " rank " << rank;
    }
}

// Three replicas and 13 rows: in the last round some have none, and take part in gathering.
TEST(ShardedValidation, EqualsSerialWhenRowsDoNotDivide) {
  for (TrainOptions options :
       {fsdp("backward-pre"), fsdp("none", true, "no"), zero(2), by_rows()}) {
    options.steps = 2;
    options.validation_fraction = 0.3;
    options.eval_interval = 1;
    options.global_batch = 9;
    TrainOptions serial = options;
    serial.technique = "serial";
    const TrainResult expected = run(1, serial), got = run(3, options);
    ASSERT_EQ(expected.validation.size(), got.validation.size());
    ASSERT_FALSE(got.validation.empty());
    for (std::size_t i = 0; i < got.validation.size(); ++i)
      EXPECT_NEAR(got.validation[i].loss / expected.validation[i].loss, 1, 1e-10);
    EXPECT_TRUE(theory_holds(got));
  }
}

TEST(ShardedOptions, AreChecked) {
  TrainOptions options = zero(4);
  EXPECT_THROW(plan_of(options, 2), Error);
  options = zero(1);
  options.zero_volume = "half";
  EXPECT_THROW(plan_of(options, 2), Error);
  options = fsdp("later");
  EXPECT_THROW(plan_of(options, 2), Error);
  options = fsdp("none");
  options.limit_all_gathers = -1;
  EXPECT_THROW(plan_of(options, 2), Error);
  options = fsdp("none");
  options.sharding = "rows";
  EXPECT_THROW(plan_of(options, 2), Error);
}

// A single replica exchanges nothing, so it rounds nothing either.
TEST(GradientExchange, OfOneReplicaEncodesNothing) {
  for (const char* technique : {"zero", "fsdp", "ddp"}) {
    TrainOptions options = test::golden_run(technique);
    options.steps = 2;
    const TrainResult expected = test::run(1, options);
    options.reduce_dtype = DType::f32;
    const TrainResult result = test::run(1, options);
    for (std::size_t i = 0; i < expected.steps.size(); ++i)
      EXPECT_EQ(result.steps[i].grad_norm, expected.steps[i].grad_norm) << technique;
    EXPECT_TRUE(theory_holds(result)) << technique;
  }
}

}  // namespace
}  // namespace lockstep
