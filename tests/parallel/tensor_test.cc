// Tensor and sequence parallelism compared with the reference run in float64 and with one rank; their
// traffic and memory compared with the closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt_config.h"
#include "models/layers/masks.h"
#include "models/random.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::expect_same_steps;
using test::Folder;
using test::golden_run;
using test::refusal;
using test::run;
using testing::HasSubstr;

struct TensorCase {
  int ranks;
  const char* name;
  bool by_sequence = false, keeps_gathered = false, overlaps = false;
};
void PrintTo(const TensorCase& c, std::ostream* out) { *out << c.ranks << " ranks, " << c.name; }

TrainOptions tensor_run(const TensorCase& c, DType dtype = DType::f64) {
  TrainOptions options = golden_run("tp", dtype);
  options.sequence_parallel = c.by_sequence;
  options.keep_gathered = c.keeps_gathered;
  options.tensor_overlap = c.overlaps;
  return options;
}

class TensorRuns : public testing::TestWithParam<TensorCase> {};

TEST_P(TensorRuns, ReproduceTheGoldenRun) {
  TrainOptions options = tensor_run(GetParam());
  options.micro_batches = 2;
  const TrainResult result = run(GetParam().ranks, options);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  expect_golden(run(GetParam().ranks, tensor_run(GetParam(), DType::f32)), 1e-5);
}

TEST_P(TensorRuns, FinalWeightsEqualSerial) {
  test::expect_same_weights(GetParam().ranks, tensor_run(GetParam()));
}

// As Megatron-LM's papers count: 4 (t-1)/t of tokens * C per layer and direction, and 6 in backward
// if inputs are gathered again.
TEST_P(TensorRuns, LayersSendWhatMegatronsDo) {
  TrainOptions options = tensor_run(GetParam());
  options.steps = 1;
  const TrainResult result = run(GetParam().ranks, options);
  const std::int64_t t = GetParam().ranks, tokens = 8 * 16, layers = 8, width = 32;
  const std::int64_t unit = (t - 1) * tokens * width * 8 / t;
  const bool gathers_again = GetParam().by_sequence && !GetParam().keeps_gathered;
  for (const RankRecord& rank : result.ranks) {
    const auto sent = [&](const char* label) {
      const auto found = rank.traffic.find(label);
      return found == rank.traffic.end() ? 0 : found->second.sent_bytes;
    };
    EXPECT_EQ(sent("layers forward"), 4 * unit * layers);
    EXPECT_EQ(sent("layers backward"), (gathers_again ? 6 : 4) * unit * layers);
    EXPECT_EQ(sent("embedding"), 2 * unit);
    EXPECT_EQ(sent("head"), (gathers_again ? 3 : 2) * unit);
    EXPECT_EQ(sent("loss"), 3 * 2 * (t - 1) * tokens * 8 / t);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TensorRuns,
    test::sampled<TensorCase>(
        {TensorCase{1, "one"}, TensorCase{2, "tp"}, TensorCase{4, "tp"},
         TensorCase{2, "overlap", false, false, true}, TensorCase{4, "overlap", false, false, true},
         TensorCase{2, "sp", true}, TensorCase{4, "sp", true}, TensorCase{2, "sp_kept", true, true},
         TensorCase{4, "sp_kept", true, true}, TensorCase{2, "sp_overlap", true, false, true},
         TensorCase{4, "sp_overlap", true, false, true},
         TensorCase{4, "sp_kept_overlap", true, true, true}}),
    [](const auto& test) {
      return std::string(test.param.name) + "_" + std::to_string(test.param.ranks);
    });

// A model whose sizes do not divide evenly, unlike the golden one.
class OddModel {
 public:
  explicit OddModel(int kv_heads = 0, int vocabulary = 131) {
    write_file(folder_.file("config.json"), gpt_config_json({.layers = 2,
                                                             .heads = 4,
                                                             .width = 32,
                                                             .context = 16,
                                                             .vocabulary = vocabulary,
                                                             .kv_heads = kv_heads}));
  }

  TrainOptions run_of(const std::string& technique) const {
    TrainOptions options = golden_run(technique);
    options.model = folder_.file("config.json");
    options.init.clear();
    options.steps = 3;
    return options;
  }

 private:
  Folder folder_;
};

TEST(TensorVocabulary, NeedNotBeAMultipleOfTheRanks) {
  const OddModel model;
  const TrainResult serial = run(1, model.run_of("serial"));
  // With a multiple of 64 the last of four ranks has only padding.
  for (const int multiple : {1, 7, 64})
    for (const int ranks : {2, 4})
      for (const char* technique : {"tp", "sp"}) {
        TrainOptions options = model.run_of(technique);
        options.vocabulary_multiple = multiple;
        const TrainResult result = run(ranks, options);
        expect_same_steps(result, serial, 1e-10);
        EXPECT_TRUE(theory_holds(result));
      }
}

TEST(TensorVocabulary, SavedWeightsHaveNoPadding) {
  const OddModel model;
  const Folder folder;
  TrainOptions serial = model.run_of("serial"), split = model.run_of("tp");
  serial.save = folder.file("serial.safetensors");
  split.save = folder.file("split.safetensors");
  split.vocabulary_multiple = 7;
  run(1, serial);
  run(4, split);
  const auto expected = test::weights_of(serial.save), got = test::weights_of(split.save);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-10) << i;
}

// The same if several ranks share a key/value head.
TEST(TensorHeads, MayShareKeysAndValues) {
  for (const int kv_heads : {1, 2, 4}) {
    const OddModel model(kv_heads);
    const TrainResult serial = run(1, model.run_of("serial"));
    EXPECT_EQ(serial.parameters, gpt_config(model.run_of("serial").model).parameter_count());
    for (const int ranks : {2, 4})
      for (const char* technique : {"tp", "sp"}) {
        const TrainResult result = run(ranks, model.run_of(technique));
        expect_same_steps(result, serial, 1e-10);
        EXPECT_TRUE(theory_holds(result));
      }
  }
}

TEST(TensorLoss, WithSmoothedLabelsIsSerials) {
  const OddModel model;
  TrainOptions serial = model.run_of("serial");
  const double sharp = run(1, serial).steps.front().loss;
  serial.label_smoothing = 0.1;
  const TrainResult expected = run(1, serial);
  EXPECT_GT(std::abs(expected.steps.front().loss - sharp), 1e-6);
  for (const char* technique : {"tp", "sp"}) {
    TrainOptions options = model.run_of(technique);
    options.label_smoothing = 0.1;
    const TrainResult result = run(4, options);
    expect_same_steps(result, expected, 1e-10);
    EXPECT_TRUE(theory_holds(result));
  }
}

TEST(TensorRun, InSixteenBitsFollowsSerial) {
  for (const char* technique : {"tp", "sp"}) {
    TrainOptions options = golden_run(technique, DType::bf16);
    const TrainResult result = run(2, options);
    EXPECT_TRUE(theory_holds(result));
    options.technique = "serial";
    const TrainResult serial = run(1, options);
    for (std::size_t i = 0; i < serial.steps.size(); ++i)
      EXPECT_NEAR(result.steps[i].loss / serial.steps[i].loss, 1, 5e-3);
  }
}

// With the counting clock: a rank computes exactly as long as configured, and waits for the rest of a
// step.
TEST(TensorWaiting, IsNoComputing) {
  for (const TensorCase& c :
       {TensorCase{4, "tp"}, TensorCase{4, "overlap", false, false, true},
        TensorCase{4, "sp", true}, TensorCase{4, "sp_overlap", true, false, true}}) {
    TrainOptions options = tensor_run(c);
    options.steps = 2;
    options.compute_seconds = 0.5;
    options.slow_ranks = {{1, 3}};
    const TrainResult result = run({.ranks = c.ranks,
                                    .timeout_s = 30,
                                    .fault = {},
                                    .clock = Clock::unit,
                                    .links = parse_links("alpha=1ms,beta=1GB/s")},
                                   options);
    for (const RankRecord& rank : result.ranks) {
      EXPECT_GT(rank.exposed_communication_seconds, 0.1) << c.name;
      EXPECT_NEAR(rank.busy_seconds, 2 * 0.5 * (rank.rank == 1 ? 3 : 1), 1e-9) << c.name;
    }
  }
}

TEST(TensorRun, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal(3, golden_run("tp")), HasSubstr("4 heads on 3 tensor-parallel ranks"));
  EXPECT_THAT(refusal(3, golden_run("tp")), HasSubstr("multiple of the ranks"));
  EXPECT_THAT(refusal(8, golden_run("tp")), HasSubstr("8 tensor-parallel ranks for 4 heads"));
  TrainOptions options = golden_run("sp");
  options.sequence_length = 10;
  EXPECT_THAT(refusal(4, options), HasSubstr("sequences of 10 tokens on 4"));
  options = golden_run("tp");
  options.mesh_lengths[Axis::tp] = 2;
  EXPECT_THAT(refusal(4, options), HasSubstr("--tp 2 with 4 ranks"));
  options = golden_run("tp");
  options.vocabulary_multiple = 0;
  EXPECT_THAT(refusal(2, options), HasSubstr("--make-vocab-size-divisible-by 0"));
}

// Of 64 elements: the ones that dropout keeps.
std::uint64_t kept(const Dropout& dropout) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; ++i)
    if (random_uniform(dropout.seed, dropout.stream, dropout.index(0, 8) + i) >= dropout.rate)
      bits |= std::uint64_t{1} << i;
  return bits;
}

// Megatron-LM's two streams: ranks drop the same elements where all compute the same, and different
// ones where they split the work. By place, the parts are those of one rank.
TEST(Masks, OfRanksAreTheSameWhereTheirDataAre) {
  const Rows rows{.sequences = 2, .length = 8, .first = 48, .step = 3};
  for (const DropoutStreams streams : {DropoutStreams::by_place, DropoutStreams::megatron}) {
    const MaskOptions options{.rate = 0.5, .seed = 7, .streams = streams};
    for (const bool by_sequence : {false, true}) {
      const Masks first(options, {.ranks = 2, .rank = 0, .by_sequence = by_sequence});
      const Masks second(options, {.ranks = 2, .rank = 1, .by_sequence = by_sequence});
      const auto of = [&](const Masks& masks) { return kept(masks.hidden(rows, 1, Dropped::mlp)); };
      EXPECT_EQ(of(first) == of(second), !by_sequence);
      const Dropout here = first.attention(rows, 1, 2), there = second.attention(rows, 1, 2);
      EXPECT_TRUE(here.seed != there.seed || here.first_head != there.first_head);
      if (streams == DropoutStreams::megatron) {
        EXPECT_EQ(there.seed, 7u + 2718 + 1);
      }
    }
    const Masks whole(options, {});
    EXPECT_NE(kept(whole.hidden(rows, 1, Dropped::mlp)),
              kept(whole.hidden(rows, 1, Dropped::projection)));
    EXPECT_NE(kept(whole.hidden(rows, 1, Dropped::mlp)), kept(whole.hidden(rows, 2, Dropped::mlp)));
    Rows next = rows;
    ++next.step;
    EXPECT_NE(kept(whole.hidden(rows, 1, Dropped::mlp)), kept(whole.hidden(next, 1, Dropped::mlp)));
    next.step = -1;
    EXPECT_EQ(whole.hidden(next, 1, Dropped::mlp).rate, 0);
  }
}

}  // namespace
}  // namespace lockstep
