// Techniques along the axes of a mesh compared with one rank; dropout and recomputation with all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "parallel/predict/predict.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::expect_same_steps;
using test::golden_run;
using test::refusal;
using test::run;
using testing::HasSubstr;

struct MeshShape {
  int tp, pp, dp;
  bool by_sequence = false, overlaps = false;
  const char* schedule = "1f1b";
  const char* order = "tp-cp-dp-pp";
  int ranks() const { return tp * pp * dp; }
};
void PrintTo(const MeshShape& s, std::ostream* out) {
  *out << s.tp << " x " << s.pp << " x " << s.dp << " " << s.schedule << " " << s.order;
}

TrainOptions composed_run(const MeshShape& shape, DType dtype = DType::f64) {
  TrainOptions options = golden_run("3d", dtype);
  options.mesh_lengths[Axis::tp] = shape.tp;
  options.mesh_lengths[Axis::pp] = shape.pp;
  if (shape.dp > 0) options.mesh_lengths[Axis::dp] = shape.dp;
  options.sequence_parallel = shape.by_sequence;
  options.tensor_overlap = shape.overlaps;
  options.schedule = shape.schedule;
  options.mesh_order = shape.order;
  options.micro_batches = 2;
  return options;
}

class Composed : public testing::TestWithParam<MeshShape> {};

TEST_P(Composed, ReproducesTheGoldenRun) {
  const TrainResult result = run(GetParam().ranks(), composed_run(GetParam()));
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
}

TEST_P(Composed, FinalWeightsEqualSerial) {
  test::expect_same_weights(GetParam().ranks(), composed_run(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Composed,
    test::sampled<MeshShape>(
        {MeshShape{2, 2, 2}, MeshShape{2, 2, 2, true}, MeshShape{2, 2, 2, true, true},
         MeshShape{2, 2, 2, false, false, "1f1b", "tp-pp-dp"},
         MeshShape{2, 2, 2, true, false, "zb-h1", "pp-dp-tp"}, MeshShape{4, 2, 1, true},
         MeshShape{2, 2, 1, false, false, "interleaved"}, MeshShape{2, 2, 1, true, false, "zb-v"},
         MeshShape{1, 4, 2}, MeshShape{2, 1, 4}, MeshShape{4, 1, 1}, MeshShape{1, 1, 4}}),
    [](const auto& test) { return std::to_string(test.index); });

TrainOptions run_of_four_axes() {
  TrainOptions options = composed_run({2, 2, 2});
  options.mesh_lengths[Axis::cp] = options.ring_ranks = 2;
  return options;
}

TEST(FourAxes, ReproduceTheGoldenRun) {
  const TrainResult result = run(16, run_of_four_axes());
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  test::expect_same_weights(16, run_of_four_axes());
}

// What a rank sends in a step is the sum of what each axis alone makes it send. Of the model's 8
// layers each stage has 4; 8 sequences of 16 tokens are 2 micro-batches of 16 rows on every rank.
TEST(FourAxes, SendWhatTheirPartsSend) {
  const Plan plan = plan_of(run_of_four_axes(), 16);
  constexpr std::int64_t rows = 16, width = 32, element = 8, micro_batches = 2, layers = 4;
  constexpr std::int64_t hidden = rows * width * element;  // an all-reduce of 2 ranks sends as much
  constexpr std::int64_t embedding = 128 / 2 * width * element;
  constexpr std::int64_t keys_values = rows * 2 * (width / 2) * element;
  for (int rank = 0; rank < 16; ++rank) {
    const bool is_first = plan.place(rank, Axis::pp) == 0;
    const std::int64_t parameters =
        predict(plan, rank).peak_bytes[static_cast<int>(MemoryUse::parameters)]->value;
    const std::map<std::string, std::int64_t> parts = {
        {"layers forward", layers * micro_batches * 2 * hidden},
        {"layers backward", layers * micro_batches * 2 * hidden},
        {is_first ? "embedding" : "head", micro_batches * hidden},
        // In forward and again in backward, one hop around a ring of 2; gradients once.
        {"keys and values", layers * micro_batches * 2 * keys_values},
        {"gradients of keys and values", layers * micro_batches * keys_values},
        {is_first ? "activations" : "gradients of activations", micro_batches * hidden},
        {"tied embedding", embedding},
        // 2 (P - 1) / P of 2 x 2 ranks that share sequences or replicate.
        {"gradients", 2 * parameters * 3 / 4},
        // Over the 2 x 2 ranks of the model in 2 rounds.
        {"norm", 2 * element},
        // The highest logit of a row, the sum of its exponentials, and the target's logit.
        {"loss", is_first ? 0 : micro_batches * rows * 3 * element}};
    std::int64_t sum = 0;
    const Prediction prediction = predict(plan, rank);
    for (const auto& [label, bytes] : parts) {
      const auto found = prediction.traffic.find(label);
      EXPECT_EQ(found == prediction.traffic.end() ? 0 : found->second.sent_bytes, bytes)
          << label << " of rank " << rank;
      sum += bytes;
    }
    EXPECT_EQ(prediction.total->sent_bytes, sum) << "rank " << rank;
  }
}

TEST(ComposedRun, InF32FollowsTheGoldenRun) {
  expect_golden(run(8, composed_run({2, 2, 2, true}, DType::f32)), 1e-5);
}

// Each of its pipelines has the bubble of the schedule alone.
TEST(ComposedRun, HasThePipelinesBubble) {
  TrainOptions options = composed_run({2, 4, 1, true});
  options.micro_batches = 8;
  options.steps = 2;
  options.compute_seconds = 3.0 * options.micro_batches;
  const TrainResult result =
      run({.ranks = 8, .timeout_s = 30, .fault = {}, .clock = Clock::unit, .links = {}}, options);
  ASSERT_TRUE(result.bubble.has_value());
  EXPECT_NEAR(result.bubble->fraction, 3.0 / 11, 1e-12);
  EXPECT_NEAR(result.bubble->expected_fraction.value_or(0), 3.0 / 11, 1e-12);
}

// The last virtual stage of a rank completes its gradients while the first one is still in backward:
// their reduction is hidden, and its bytes do not change.
TEST(ComposedRun, HidesReductionsBehindBackward) {
  TrainOptions options = composed_run({1, 2, 2, false, false, "interleaved"});
  options.micro_batches = 4;
  options.steps = 2;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  options.compute_seconds = 1;
  const auto result = [&](bool overlap) {
    options.overlap = overlap;
    return run({.ranks = 4,
                .timeout_s = 30,
                .fault = {},
                .clock = Clock::unit,
                .links = parse_links("alpha=1ms,beta=10MB/s")},
               options);
  };
  const TrainResult overlapped = result(true), after = result(false);
  EXPECT_LT(overlapped.steps.back().seconds, after.steps.back().seconds - 0.01);
  for (int rank = 0; rank < 4; ++rank) {
    const RankRecord &with = overlapped.ranks[static_cast<std::size_t>(rank)],
                     &without = after.ranks[static_cast<std::size_t>(rank)];
    EXPECT_GT(with.hidden_communication_seconds, 0) << rank;
    EXPECT_EQ(without.hidden_communication_seconds, 0) << rank;
    EXPECT_EQ(with.traffic, without.traffic) << rank;
  }
  EXPECT_EQ(overlapped.steps.back().loss, after.steps.back().loss);
}

// Every sequence is validated once, for any mesh.
TEST(ComposedRun, ValidatesAsSerialDoes) {
  TrainOptions serial = golden_run("serial");
  serial.steps = 2;
  serial.validation_fraction = 0.25;
  const double expected = run(1, serial).validation.back().loss;
  for (const char* order : {"tp-cp-dp-pp", "dp-pp-tp"}) {
    TrainOptions options = composed_run({2, 2, 2, true, false, "1f1b", order});
    options.steps = 2;
    options.validation_fraction = 0.25;
    EXPECT_NEAR(run(8, options).validation.back().loss / expected, 1, 1e-10) << order;
  }
}

// Computing takes no time, but messages do.
TEST(ComposedRun, WaitsNoLongerOnASlowRank) {
  TrainOptions options = composed_run({2, 2, 2});
  options.steps = 1;
  const auto seconds = [&] {
    return run({.ranks = 8,
                .timeout_s = 30,
                .fault = {},
                .clock = Clock::unit,
                .links = parse_links("alpha=1ms,beta=1GB/s")},
               options)
        .steps.front()
        .seconds;
  };
  const double expected = seconds();
  options.slow_ranks = {{1, 3}};
  EXPECT_NEAR(seconds(), expected, 1e-9);
}

// Validation uses neither dropout nor label smoothing, in any technique.
TEST(Validation, IsThatOfTheWeightsAlone) {
  const auto validation = [](int ranks, TrainOptions options) {
    options.steps = 1;
    options.learning_rate = 0;
    options.validation_fraction = 0.25;
    return run(ranks, options).validation.back().loss;
  };
  const double expected = validation(1, golden_run("serial"));
  const auto regularised = [](TrainOptions options) {
    options.dropout = 0.3;
    options.label_smoothing = 0.3;
    return options;
  };
  EXPECT_EQ(validation(1, regularised(golden_run("serial"))), expected);
  for (const char* technique : {"ddp", "pipeline", "tp", "sp"})
    EXPECT_NEAR(validation(2, regularised(golden_run(technique))) / expected, 1, 1e-10)
        << technique;
  EXPECT_NEAR(validation(8, regularised(composed_run({2, 2, 2, true}))) / expected, 1, 1e-10);
}

// Replicas with 4 and 3 sequences in 3 micro-batches each.
TEST(ComposedRun, SharesMayBeUneven) {
  TrainOptions serial = golden_run("serial");
  serial.steps = 3;
  serial.global_batch = 7;
  serial.validation_fraction = 0.25;
  const TrainResult expected = run(1, serial);
  TrainOptions options = composed_run({2, 2, 2, true});
  options.steps = 3;
  options.global_batch = 7;
  options.micro_batches = 3;
  options.validation_fraction = 0.25;
  const TrainResult result = run(8, options);
  expect_same_steps(result, expected, 1e-10);
  EXPECT_NEAR(result.validation.back().loss / expected.validation.back().loss, 1, 1e-10);
  EXPECT_TRUE(theory_holds(result));
}

struct Dropping {
  const char* technique;
  int ranks;
  bool splits_backward = false;
};
void PrintTo(const Dropping& d, std::ostream* out) { *out << d.technique; }

class DroppingOut : public testing::TestWithParam<Dropping> {
 protected:
  static TrainOptions options_of(const std::string& technique) {
    TrainOptions options =
        technique == "3d" ? composed_run({2, 2, 2, true}) : golden_run(technique);
    if (technique == "ps" || technique == "ddp") options.micro_batches = 2;
    if (technique == "pipeline") options.micro_batches = 4;
    if (technique == "pipeline") options.schedule = "zb-h1";
    if (technique == "3d") options.mesh_lengths[Axis::dp].reset();
    options.steps = 3;
    options.dropout = 0.2;
    return options;
  }
};

// Dropped elements depend on their place in the whole model and batch.
TEST_P(DroppingOut, IsTheSameOnAnyRanks) {
  const TrainResult serial = run(1, options_of("serial"));
  TrainOptions none = options_of("serial");
  none.dropout = 0;
  EXPECT_GT(std::abs(run(1, none).steps.front().loss - serial.steps.front().loss), 1e-6);
  const TrainResult result = run(GetParam().ranks, options_of(GetParam().technique));
  expect_same_steps(result, serial, 1e-10);
  EXPECT_TRUE(theory_holds(result));
}

TEST_P(DroppingOut, RecomputingChangesNothingButTheMemory) {
  TrainOptions options = options_of(GetParam().technique);
  options.validation_fraction = 0.2;
  options.label_smoothing = 0.1;
  options.loss_scaling = "torch";
  const TrainResult kept = run(GetParam().ranks, options);
  std::int64_t activations = kept.ranks.front().peak_bytes.at("activations");
  for (const char* recompute : {"selective", "full"}) {
    options.recompute = recompute;
    const TrainResult again = run(GetParam().ranks, options);
    EXPECT_TRUE(theory_holds(again)) << recompute;
    for (std::size_t i = 0; i < kept.steps.size(); ++i) {
      EXPECT_EQ(again.steps[i].loss, kept.steps[i].loss) << recompute;
      EXPECT_EQ(again.steps[i].grad_norm, kept.steps[i].grad_norm) << recompute;
    }
    EXPECT_EQ(again.validation.back().loss, kept.validation.back().loss) << recompute;
    const std::int64_t less = again.ranks.front().peak_bytes.at("activations");
    EXPECT_LT(less, activations) << recompute;
    activations = less;
  }
}

INSTANTIATE_TEST_SUITE_P(Techniques, DroppingOut,
                         testing::Values(Dropping{"serial", 1}, Dropping{"ddp", 2},
                                         Dropping{"ps", 3}, Dropping{"pipeline", 2},
                                         Dropping{"tp", 2}, Dropping{"sp", 2}, Dropping{"3d", 8}),
                         [](const auto& test) {
                           return test.param.technique == std::string("3d") ? "mesh"
                                                                            : test.param.technique;
                         });

// With separate streams per rank the result differs, but is reproducible.
TEST(DroppingOutAsMegatron, IsAnotherRun) {
  TrainOptions options = golden_run("sp");
  options.steps = 2;
  options.dropout = 0.2;
  const TrainResult by_place = run(2, options);
  options.dropout_streams = "megatron";
  const TrainResult own = run(2, options);
  EXPECT_NE(own.steps[0].loss, by_place.steps[0].loss);
  EXPECT_EQ(own.steps[1].loss, run(2, options).steps[1].loss);
}

TEST(ComposedRun, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal(6, composed_run({2, 2, 2})),
              HasSubstr("--tp 2 times --cp 1 times --pp 2 times --dp 2"));
  TrainOptions options = composed_run({2, 2, 0});
  EXPECT_THAT(refusal(6, options), HasSubstr("must divide --ranks"));
  options.mesh_lengths[Axis::pp] = 0;
  EXPECT_THAT(refusal(6, options), HasSubstr("--pp 0"));
  EXPECT_THAT(refusal(6, composed_run({3, 2, 1})), HasSubstr("4 heads on 3"));
  options = composed_run({1, 1, 4});
  options.global_batch = 7;
  EXPECT_THAT(refusal(4, options), HasSubstr("a global batch of 7 sequences is too small for 4"));
  EXPECT_THAT(refusal(9, composed_run({1, 9, 1})),
              HasSubstr("9 pipeline stages are more than the model's 8 layers"));
  EXPECT_THAT(refusal(8, composed_run({2, 2, 2, false, false, "1f1b", "tp-ep"})),
              HasSubstr("no axis 'ep'"));
  options = composed_run({2, 2, 2});
  options.recompute = "some";
  EXPECT_THAT(refusal(8, options), HasSubstr("--recompute 'some'"));
  options = composed_run({2, 2, 2});
  options.dropout = 1;
  EXPECT_THAT(refusal(8, options), HasSubstr("--dropout 1"));
}

}  // namespace
}  // namespace lockstep
