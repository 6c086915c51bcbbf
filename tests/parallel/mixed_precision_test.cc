// Parameters, activations and gradients in 16 bits: results close to f64, f32 master weights, and
// steps that all ranks skip together if gradients overflow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "collectives/base/error.h"
#include "models/data/dataset.h"
#include "models/gpt/gpt.h"
#include "models/gpt_config.h"
#include "models/ops/narrow_backend.h"
#include "parallel/plan/loss_scale.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::golden_run;
using test::run;

using Scales = std::vector<double>;

// The scale after each step; steps marked 1 overflow.
Scales trace(LossScaling rule) {
  LossScaler scaler(rule, 16, 4);
  Scales scales;
  for (const char step : std::string("00001011000001")) {
    scaler.update(step == '1');
    scales.push_back(scaler.scale());
  }
  return scales;
}

// The results of the frameworks' own code for these steps.
TEST(LossScale, FollowsEachFrameworksRule) {
  EXPECT_EQ(trace(LossScaling::torch), (Scales{16, 16, 16, 32, 16, 16, 8, 4, 4, 4, 4, 8, 8, 4}));
  EXPECT_EQ(trace(LossScaling::megatron),
            (Scales{16, 16, 16, 32, 32, 32, 16, 8, 8, 8, 8, 16, 16, 16}));
  EXPECT_EQ(trace(LossScaling::deepspeed),
            (Scales{16, 16, 16, 16, 16, 16, 8, 4, 4, 4, 4, 4, 8, 8}));
  EXPECT_EQ(trace(LossScaling::none), Scales(14, 16));
  // DeepSpeed counts from the last overflow, even past a growth: the next growth comes a window
  // later.
  LossScaler deepspeed(LossScaling::deepspeed, 16, 4);
  for (int i = 0; i < 9; ++i) deepspeed.update(false);
  EXPECT_EQ(deepspeed.scale(), 64);
}

TEST(LossScale, BeginsWhereTheFrameworkDoes) {
  EXPECT_EQ(LossScaler(LossScaling::torch).scale(), 65536);
  EXPECT_EQ(LossScaler(LossScaling::megatron).scale(), 4294967296.0);
  EXPECT_EQ(LossScaler(LossScaling::deepspeed).scale(), 65536);
  EXPECT_EQ(LossScaler(LossScaling::none).scale(), 1);
  TrainOptions options;
  options.initial_loss_scale = 8;
  options.loss_scale_window = 3;
  EXPECT_EQ(loss_scaler(options).scale(), 1) << "without loss scaling there is none";
  options.loss_scaling = "torch";
  EXPECT_EQ(loss_scaler(options).scale(), 8);
  EXPECT_EQ(loss_scaler(options).window(), 3);
  LossScaler megatron(LossScaling::megatron, 2, 4);
  for (int i = 0; i < 10; ++i) megatron.update(true);
  EXPECT_EQ(megatron.scale(), 1) << "it has a minimum";
  EXPECT_EQ(loss_scaling_from_name("deepspeed"), LossScaling::deepspeed);
  EXPECT_THROW(loss_scaling_from_name("apex"), Error);
}

struct NarrowCase {
  const char* technique;
  int ranks;
};
class Narrow : public testing::TestWithParam<NarrowCase> {
 protected:
  TrainOptions options(DType dtype) const { return golden_run(GetParam().technique, dtype); }
  TrainResult train(DType dtype) const { return run(GetParam().ranks, options(dtype)); }
};

TEST_P(Narrow, StaysCloseToDouble) {
  expect_golden(train(DType::bf16), 1e-2);
  expect_golden(train(DType::f16), 2e-3);
}

TEST_P(Narrow, KeepsTwoTwoAndTwelveBytesAParameter) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const TrainResult result = train(dtype);
    EXPECT_TRUE(theory_holds(result));
    std::int64_t optimizer = 0;
    for (const RankRecord& rank : result.ranks) {
      EXPECT_LE(rank.peak_bytes.at("parameters"), 2 * 106304);
      EXPECT_EQ(rank.peak_bytes.at("parameters"), rank.peak_bytes.at("gradients"));
      optimizer += rank.peak_bytes.at("optimizer");
    }
    const bool sharded = std::string(GetParam().technique) == "ps";
    EXPECT_EQ(optimizer, std::int64_t{12} * 106304 * (sharded ? 1 : GetParam().ranks));
  }
}

// Every rank's widened copies have the predicted size, whatever its layers, schedule and
// recomputation. Sequence parallelism has an estimate: its embedding depends on the tokens.
TEST(NarrowWorkspace, IsPredictedExactly) {
  const auto golden = [](const char* technique, DType dtype) {
    TrainOptions options = golden_run(technique, dtype);
    options.steps = 2;
    options.micro_batches = 2;
    return options;
  };
  int compared = 0;
  const auto expect_predicted = [&](int ranks, const TrainOptions& options, bool exact) {
    int here = 0;
    for (const TheoryRecord& record : run(ranks, options).theory) {
      if (record.quantity != "peak_bytes.workspace") continue;
      EXPECT_GT(record.measured, 0) << options.technique;
      EXPECT_EQ(record.exact, exact) << options.technique;
      if (exact) {
        EXPECT_EQ(record.expected, record.measured) << options.technique << " " << record.rank;
      }
      EXPECT_GE(record.expected, record.measured) << options.technique << " " << record.rank;
      ++here;
    }
    EXPECT_EQ(here, ranks) << options.technique;
    compared += here;
  };
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const char* recompute : {"none", "full"}) {
      TrainOptions mesh = golden("3d", dtype);
      mesh.mesh_lengths[Axis::tp] = mesh.mesh_lengths[Axis::pp] = 2;
      mesh.recompute = recompute;
      expect_predicted(4, mesh, true);
      TrainOptions serial = golden("serial", dtype);
      serial.recompute = recompute;
      expect_predicted(1, serial, true);
    }
    TrainOptions zero_bubble = golden("pipeline", dtype);
    zero_bubble.schedule = "zb-h1";
    expect_predicted(2, zero_bubble, true);
    TrainOptions overlap = golden("tp", dtype);
    overlap.tensor_overlap = true;
    expect_predicted(2, overlap, true);
    expect_predicted(2, golden("sp", dtype), false);
  }
  EXPECT_EQ(compared, 2 * (2 * (4 + 1) + 3 * 2));
}

// 2^32 times the loss exceeds the range of f16, so the first steps are skipped until the scale fits.
TEST_P(Narrow, StepsThatOverflowAreSkippedByAll) {
  TrainOptions begins_high = options(DType::f16);
  begins_high.loss_scaling = "megatron";
  begins_high.steps = 24;
  begins_high.order = "random";
  const TrainResult result = run(GetParam().ranks, begins_high);
  const auto first_taken = std::ranges::find(result.steps, false, &StepRecord::skipped);
  ASSERT_NE(first_taken, result.steps.end());
  EXPECT_GT(first_taken - result.steps.begin(), 4);
  EXPECT_TRUE(
      std::all_of(first_taken, result.steps.end(), [](const StepRecord& s) { return !s.skipped; }));
  // The second overflow is the first to lower the scale.
  EXPECT_EQ(result.steps[1].loss_scale, result.steps[0].loss_scale);
  EXPECT_EQ(result.steps[2].loss_scale, result.steps[0].loss_scale / 2);
  EXPECT_TRUE(theory_holds(result));
}

INSTANTIATE_TEST_SUITE_P(Techniques, Narrow,
                         testing::Values(NarrowCase{"serial", 1}, NarrowCase{"ddp", 2},
                                         NarrowCase{"ddp", 4}, NarrowCase{"ps", 3}),
                         [](const auto& test_info) {
                           return std::string(test_info.param.technique) +
                                  std::to_string(test_info.param.ranks);
                         });

// In a batch of ten million targets, one target has gradients below the range of f16.
TEST(LossScale, KeepsSmallGradients) {
  Ledger ledger;
  NarrowBackend narrow(host_backend(), ledger);
  const GptConfig config = gpt_config(test::golden + "/config.json");
  Gpt model(config, narrow, DType::f16, ledger), exact(config, host_backend(), DType::f32, ledger);
  const Dataset dataset(test::golden + "/tokens.bin", config.vocabulary, 0);
  const Batch batch = dataset.batch({Order::sequential, 8, 16, 1}, 0, 0, 8);
  model.initialize(1);
  exact.initialize(1);
  constexpr Count targets = 10'000'000;
  exact.forward_backward(batch, targets);
  const double expected = std::sqrt(host_backend().squared_norm(exact.parameters().gradients()));
  const auto norm = [&](double scale) {
    model.parameters().zero_gradients();
    model.forward_backward(batch, targets, scale);
    return std::sqrt(model.backend().squared_norm(model.parameters().gradients())) / scale;
  };
  EXPECT_NEAR(norm(65536) / expected, 1, 0.01);
  EXPECT_LT(norm(1) / expected, 0.9);
}

// One rank's gradients contain a NaN. Every rank must skip the step, or their weights would differ
// from then on.
TEST(Overflow, OnOneRankSkipsTheStepOnEvery) {
  struct Fault {
    NarrowCase where;
    int rank, operation;  // the one that carries the gradients of an early step
  };
  for (const auto& [where, rank, operation] :
       {Fault{{"ddp", 2}, 0, 5}, Fault{{"ddp", 2}, 1, 5}, Fault{{"ddp", 4}, 3, 5},
        Fault{{"ps", 3}, 0, 3}, Fault{{"ps", 3}, 1, 2}}) {
    const FaultPlan nan{.rank = rank, .operation = operation, .kind = FaultKind::nan};
    const TrainResult result = run({.ranks = where.ranks, .timeout_s = 20, .fault = nan},
                                   golden_run(where.technique, DType::f16));
    EXPECT_EQ(std::ranges::count(result.steps, true, &StepRecord::skipped), 1)
        << where.technique << " of " << where.ranks << ", rank " << rank;
    EXPECT_EQ(result.steps.back().loss_scale, 32768);
    EXPECT_TRUE(std::isfinite(result.steps.back().loss));
    EXPECT_TRUE(theory_holds(result));
  }
}

TEST(Overflow, WithoutScalingEndsTheRun) {
  const TrainOptions options = golden_run("ddp", DType::bf16);
  const FaultPlan nan{.rank = 1, .operation = 2, .kind = FaultKind::nan};
  EXPECT_THROW(run({.ranks = 2, .timeout_s = 20, .fault = nan}, options), Error);
}

TEST(MixedPrecision, WeightsAreSavedAndLoadedInTheirType) {
  const test::Folder folder;
  TrainOptions options = golden_run("ddp", DType::bf16);
  options.save = folder.file("bf16.safetensors");
  run(2, options);
  const SafetensorsFile file(options.save);
  for (const TensorEntry& tensor : file.tensors()) EXPECT_EQ(tensor.dtype, DType::bf16);
  TrainOptions next = options;
  next.init = options.save;
  next.save = folder.file("next.safetensors");
  EXPECT_LT(run(1, next).steps.front().loss, run(1, options).steps.front().loss);
}

TEST(MixedPrecision, OptionsThatDoNotFitAreRefused) {
  TrainOptions options = golden_run("ps", DType::f16);
  options.mode = "asp";
  EXPECT_THROW(plan_of(options, 3), Error);
  options.dtype = DType::bf16;
  EXPECT_NO_THROW(plan_of(options, 3));
  options.loss_scaling = "apex";
  EXPECT_THROW(plan_of(options, 3), Error);
  options = golden_run("ddp", DType::i32);
  EXPECT_THROW(plan_of(options, 2), Error);
}

}  // namespace
}  // namespace lockstep
