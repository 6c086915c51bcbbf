// ZeRO and FSDP: the orders of events, equality with one rank, and traffic and memory compared with
// the closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "parallel/sharded/sharding.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::golden_run;
using test::run;

std::string order_of(const OrderOptions& options, bool reduces = true) {
  return text_of(training_order({.blocks = 3}, options, reduces));
}

constexpr const char* forward = "AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2 ";

// PyTorch's orders.
TEST(UnitOrder, EqualsPyTorchs) {
  EXPECT_EQ(order_of({.prefetch = Prefetch::none}),
            std::string(forward) + "AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::backward_pre}),
            std::string(forward) + "AG2 AG1 B2 free2 RS2 AG0 B1 free1 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::backward_post}),
            std::string(forward) + "AG2 B2 free2 AG1 RS2 B1 free1 AG0 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.forward_prefetch = true, .prefetch = Prefetch::none}),
            "AG_R AG0 AG1 F0 free0 AG2 F1 free1 F2 free2 "
            "AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R");
}

TEST(UnitOrder, WithoutReshardingGathersOnce) {
  EXPECT_EQ(order_of({.reshard_after_forward = false}),
            "AG_R AG0 F0 AG1 F1 AG2 F2 B2 free2 RS2 B1 free1 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::none}, false),
            std::string(forward) + "AG2 B2 free2 AG1 B1 free1 AG0 B0 free0");
  EXPECT_EQ(order_of({.gathers = false}), "F0 F1 F2 B2 RS2 B1 RS1 B0 RS0 RS_R");
  EXPECT_EQ(text_of(evaluation_order({.blocks = 3}, {})),
            "AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2");
}

struct Case {
  std::string name;
  int ranks;
  TrainOptions options;
};

TrainOptions zero(int stage) {
  TrainOptions options = golden_run("zero");
  options.zero_stage = stage;
  return options;
}

TrainOptions fsdp(const std::string& prefetch, bool forward_prefetch = false,
                  const std::string& reshard = "yes") {
  TrainOptions options = golden_run("fsdp");
  options.prefetch = prefetch;
  options.forward_prefetch = forward_prefetch;
  options.reshard_after_forward = reshard;
  return options;
}

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
    if (options.zero_volume == "all-reduce") continue;  // adds in another order
    options.save = folder.file(name + ".safetensors");
    run(GetParam(), options);
    const std::vector<double> weights = test::weights_of(options.save);
    if (first.empty()) first = weights;
    EXPECT_EQ(weights, first) << name;
  }
}

TEST_P(Sharded, AccumulatesMicroBatchesWithAndWithoutSynchronisation) {
  for (const char* accumulation : {"sync", "no-sync"})
    for (auto [name, options] : variants()) {
      options.micro_batches = GetParam() > 2 ? 2 : 3;
      options.global_batch = GetParam() * options.micro_batches;
      options.steps = 3;
      options.accumulation = accumulation;
      SCOPED_TRACE(name + " " + accumulation);
      TrainOptions serial = golden_run("serial");
      serial.global_batch = options.global_batch;
      serial.steps = options.steps;
      const TrainResult result = run(GetParam(), options);
      test::expect_same_steps(result, run(1, serial), 1e-10);
      EXPECT_TRUE(theory_holds(result));
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sharded, testing::Values(1, 2, 3, 4, 8));

struct Mesh {
  const char* schedule;
  int tp, pp, dp;
  bool by_sequence;
};

// Under a pipeline the schedule's actions gather, free and reduce whole stages; tied copies of the
// embedding are summed first, and tensor-parallel ranks sum what they share afterwards.
TEST(ShardedMesh, EqualsTheGoldenRunAndItsClosedForms) {
  int runs = 0;
  for (const Mesh& mesh : {Mesh{"1f1b", 2, 2, 2, false}, Mesh{"interleaved", 1, 2, 2, false},
                           Mesh{"zb-h1", 2, 2, 2, true}, Mesh{"zb-v", 1, 2, 2, false},
                           Mesh{"gpipe", 2, 1, 2, true}, Mesh{"1f1b", 2, 1, 2, true}})
    for (const int stage : {1, 2, 3}) {
      TrainOptions options = golden_run("3d");
      options.schedule = mesh.schedule;
      options.tensor_ranks = mesh.tp;
      options.pipeline_ranks = mesh.pp;
      options.data_ranks = mesh.dp;
      options.sequence_parallel = mesh.by_sequence;
      options.zero_stage = stage;
      options.micro_batches = 4;
      options.steps = 3;
      SCOPED_TRACE(std::string(mesh.schedule) + " stage " + std::to_string(stage));
      const TrainResult result = run(mesh.tp * mesh.pp * mesh.dp, options);
      expect_golden(result, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      for (const TheoryRecord& record : result.theory) EXPECT_TRUE(record.exact) << record.quantity;
      ++runs;
    }
  EXPECT_EQ(runs, 18);
}

TEST(ShardedMesh, UnshardsAtMostThreeStages) {
  TrainOptions options = golden_run("3d");
  options.schedule = "interleaved";
  options.virtual_stages = 4;
  options.pipeline_ranks = 2;
  options.data_ranks = 2;
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
  int runs = 0;
  for (const auto& [ranks, replicas] : {std::pair(4, 2), {6, 2}, {6, 3}, {2, 2}})
    for (TrainOptions options : {zero(1), zero(2), fsdp("backward-pre"), fsdp("none", true)}) {
      options.replicas = replicas;
      options.micro_batches = 2;
      options.global_batch = 12;
      options.overlap = ++runs % 3 != 0;
      TrainOptions serial = golden_run("serial");
      serial.global_batch = options.global_batch;
      serial.steps = options.steps = 3;
      const TrainResult result = run(ranks, options);
      test::expect_same_steps(result, run(1, serial), 1e-10);
      EXPECT_TRUE(theory_holds(result));
      for (const RankRecord& rank : result.ranks)
        // Shards of each of the nine units differ by at most one element.
        EXPECT_NEAR(static_cast<double>(rank.peak_bytes.at("optimizer")),
                    2.0 * 8 * 106304 * replicas / ranks, 2 * 8 * 9);
    }
  EXPECT_EQ(runs, 16);
  TrainOptions mesh = golden_run("3d");
  mesh.tensor_ranks = 2;
  mesh.pipeline_ranks = 1;
  mesh.data_ranks = 4;
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
  for (TrainOptions options : {golden_run("ddp"), zero(1), zero(3), fsdp("none")}) {
    options.grad_clip = 0;  // the norm's sum has other terms
    options.save = folder.file("weights.safetensors");
    run(2, options);
    weights.push_back(test::weights_of(options.save));
  }
  for (std::size_t i = 1; i < weights.size(); ++i) EXPECT_EQ(weights[i], weights[0]) << i;
}

// PyTorch's table of gathered blocks at peak, without the root.
TEST(ShardedMemory, HasAsManyGatheredUnitsAsTheTableSays) {
  const auto peaks = [](TrainOptions options) {
    options.overlap = false;
    const Plan plan = plan_of(options, 4);
    const RankOutline outline(plan, 0);
    const RankUnits units = sharded_units(outline.model());
    const ShardedElements elements = sharded_elements(plan, 0, *sharding_of(plan), units);
    const Count block = units.all[1].count;
    const auto number = [&](Count held) {
      return static_cast<double>(held - elements.shards - units.all[0].count) /
             static_cast<double>(block);
    };
    return std::pair(number(elements.parameters), number(elements.gradients));
  };
  EXPECT_EQ(peaks(fsdp("none")), std::pair(1.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-post")), std::pair(1.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-pre")), std::pair(2.0, 1.0));
  EXPECT_EQ(peaks(fsdp("none", true)), std::pair(2.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-pre", false, "no")), std::pair(8.0, 1.0));
  TrainOptions held = fsdp("none");
  held.micro_batches = 2;
  held.accumulation = "no-sync";
  EXPECT_EQ(peaks(held), std::pair(1.0, 8.0));
}

// Figure 1 of ZeRO's paper: 7.5 billion parameters in 16 bits, 64 ranks, in GB.
TEST(ShardedMemory, RecomputesThePapersFigure) {
  const auto gigabytes = [](int stage) {
    TrainOptions options;
    options.technique = "zero";
    options.model = "gpt3";
    options.dtype = DType::bf16;
    options.global_batch = 64;
    options.zero_stage = stage;
    const Plan plan = plan_of(options, 64);
    const RankOutline outline(plan, 0);
    const auto psi = static_cast<double>(outline.parameters().count());
    double shards = psi;
    if (const auto sharding = sharding_of(plan))
      shards = static_cast<double>(
          sharded_elements(plan, 0, *sharding, sharded_units(outline.model())).shards);
    const double bytes = 2 * (stage >= 3 ? shards : psi) + 2 * (stage >= 2 ? shards : psi) +
                         static_cast<double>(optimizer_bytes(DType::bf16)) * shards;
    return bytes / psi * 7.5;
  };
  EXPECT_NEAR(gigabytes(0), 120, 0.05);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3), 1.9, 0.05);
}

TEST(ShardedMemory, SplitsStatesByStage) {
  const double psi = 106304;
  for (const int ranks : {2, 4, 8})
    for (const int stage : {1, 2, 3}) {
      TrainOptions options = zero(stage);
      options.steps = 1;
      for (const RankRecord& rank : run(ranks, options).ranks) {
        // All units of this model divide evenly by these numbers of ranks.
        EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("optimizer")), 2 * 8 * psi / ranks);
        if (stage == 1) {
          EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("gradients")), 8 * psi);
        } else {
          EXPECT_LT(static_cast<double>(rank.peak_bytes.at("gradients")),
                    8 * psi * (1.0 / ranks + 0.35));
        }
        if (stage < 3) {
          EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("parameters")), 8 * psi);
        } else {
          EXPECT_LT(static_cast<double>(rank.peak_bytes.at("parameters")),
                    8 * psi * (1.0 / ranks + 0.35));
        }
      }
    }
}

TEST(ShardedPrecision, SixteenBitsStayCloseAndFollowTheClosedForms) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (TrainOptions options : {zero(1), zero(2), fsdp("backward-pre")}) {
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
    for (const int rank : {0, 1}) {
      TrainOptions options = variant;
      options.dtype = DType::f16;
      options.loss_scaling = "torch";
      options.steps = 3;
      int once = 0;
      for (int operation = 0; operation < 24; ++operation) {
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
      EXPECT_GE(once, 9) << options.technique << options.zero_stage.value_or(3) << " rank " << rank;
    }
}

// Three replicas and 13 rows: in the last round some have none, and take part in gathering.
TEST(ShardedValidation, EqualsSerialWhenRowsDoNotDivide) {
  for (TrainOptions options : {fsdp("backward-pre"), fsdp("none", true, "no"), zero(2)}) {
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
}

}  // namespace
}  // namespace lockstep
