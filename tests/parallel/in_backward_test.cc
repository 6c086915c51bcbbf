// Optimizers that step in backward: the same steps, at another time, with the closed form's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/predict/predict.h"
#include "tests/parallel/checkpoint_runs.h"
#include "tests/parallel/lora_runs.h"

namespace lockstep {
namespace {

using test::Case;
using testing::HasSubstr;

// One micro-batch, and gradients that are not clipped.
TrainOptions steps_of(TrainOptions options, const char* optimizer = "galore") {
  options.steps = 4;
  options.micro_batches = 1;
  options.grad_clip = 0;
  options.optimizer = optimizer;
  options.galore_rank = 4;
  options.galore_period = 3;
  return options;
}

TrainOptions zero(int stage, const char* optimizer) {
  TrainOptions options = steps_of(test::golden_run("zero"), optimizer);
  options.zero_stage = stage;
  return options;
}

// Sums over pairs of ranks have the same bits however gradients are grouped.
Case pair(const char* name, int ranks, TrainOptions options,
          void (*change)(TrainOptions&) = nullptr) {
  if (change) change(options);
  return {name, ranks, std::move(options)};
}

std::vector<Case> in_pairs() {
  return {
      pair("one_rank", 1, steps_of(test::golden_run("ddp"))),
      pair("ddp", 2, steps_of(test::golden_run("ddp"))),
      pair("ddp_without_overlap", 2, steps_of(test::golden_run("ddp", DType::f32), "muon"),
           [](auto& o) { o.overlap = false; }),
      pair("ddp_of_16_bits", 2, steps_of(test::golden_run("ddp", DType::bf16), "adamw"),
           [](auto& o) { o.loss_scaling = "none"; }),
      pair("recomputed", 2, steps_of(test::golden_run("ddp"), "adamw"),
           [](auto& o) { o.recompute = "full"; }),
      pair("zero_2", 2, zero(2, "galore")),
      pair("zero_2_all_reduced", 2, zero(2, "sgd"), [](auto& o) { o.zero_volume = "all-reduce"; }),
      pair("fsdp", 3, steps_of(test::golden_run("fsdp"))),
      pair("fsdp_of_16_bits", 3, steps_of(test::golden_run("fsdp", DType::bf16), "muon"),
           [](auto& o) { o.overlap = false; }),
      pair("hsdp", 4, steps_of(test::golden_run("fsdp")), [](auto& o) { o.replicas = 2; }),
      pair("tp", 2, steps_of(test::golden_run("tp"))),
      pair("sp", 2, steps_of(test::golden_run("sp"), "muon")),
      pair("cp", 2, steps_of(test::golden_run("cp"))),
      pair("mesh", 4, steps_of(test::mesh(2, 1, 0)), [](auto& o) { o.sequence_parallel = true; }),
      pair("mesh_zero_2", 4, steps_of(test::mesh(2, 1, 2)),
           [](auto& o) { o.sequence_parallel = true; }),
      pair("experts", 2, steps_of(test::run_with_experts("moe")),
           [](auto& o) { o.expert_ranks = 2; }),
      pair("lora", 2, steps_of(test::lora_run("tp"), "adamw")),
  };
}

class InBackward : public testing::TestWithParam<Case> {
 protected:
  std::vector<double> weights(bool in_backward, TrainResult& result) {
    TrainOptions options = GetParam().options;
    options.optimizer_in_backward = in_backward;
    (options.lora_rank > 0 ? options.save_adapters : options.save) =
        folder_.file(in_backward ? "in" : "after");
    result = test::run(GetParam().ranks, options);
    return options.lora_rank > 0
               ? test::weights_of(options.save_adapters + "/adapter_model.safetensors")
               : test::weights_of(options.save);
  }
  const test::Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(, InBackward, test::sampled(in_pairs()),
                         [](const auto& test_info) { return test_info.param.name; });

TEST_P(InBackward, TakesTheSameStepsWithFewerGradients) {
  TrainResult after, in;
  const std::vector<double> expected = weights(false, after), got = weights(true, in);
  EXPECT_TRUE(theory_holds(in));
  EXPECT_EQ(got, expected);
  ASSERT_EQ(in.steps.size(), after.steps.size());
  for (std::size_t s = 0; s < in.steps.size(); ++s) {
    EXPECT_EQ(in.steps[s].loss, after.steps[s].loss) << s;
    EXPECT_NEAR(in.steps[s].grad_norm, after.steps[s].grad_norm, 1e-6 * after.steps[s].grad_norm)
        << s;
  }
  for (std::size_t rank = 0; rank < in.ranks.size(); ++rank)
    EXPECT_LT(in.ranks[rank].peak_bytes.at("gradients"),
              after.ranks[rank].peak_bytes.at("gradients"));
}

// Of four equal blocks, with ends of their own.
TEST(InBackwardMemory, IsThatOfTheEndsAndOneOrTwoBlocks) {
  TrainOptions options = steps_of(TrainOptions{}, "adamw");
  options.model = "nano";
  options.technique = "ddp";
  options.optimizer_in_backward = true;
  const auto gradients = [&](int ranks) {
    const Prediction prediction = predict(plan_of(options, ranks), 0);
    return prediction.peak_bytes[static_cast<std::size_t>(MemoryUse::gradients)]->value;
  };
  const GptConfig model = plan_of(options, 1).model;
  const Count c = model.width, block = 12 * c * c + 13 * c,
              ends = (model.vocabulary + model.context) * c + 2 * c, beta = 4;
  EXPECT_EQ(gradients(1), (ends + block) * beta);
  EXPECT_EQ(gradients(2), (ends + 2 * block) * beta);
  options.overlap = false;
  EXPECT_EQ(gradients(2), (ends + block) * beta);
}

// Its checkpoints are those of steps after backward: each run takes the other's.
TEST(InBackwardCheckpoints, AreThoseOfOtherSteps) {
  const test::Folder folder;
  Case after{"ddp", 2, steps_of(test::golden_run("ddp"))}, in = after;
  in.options.optimizer_in_backward = true;
  const TrainResult whole = test::run(2, after.options);
  for (const auto& [first, then] : {std::pair(after, in), std::pair(in, after)}) {
    const std::string saved = folder.file(first.options.optimizer_in_backward ? "in" : "after");
    test::save(first, saved);
    test::expect_same_end(test::resume(then, saved + "/step-00000002"), whole, 1e-12);
  }
}

TEST(InBackwardRules, RefuseWhatNeedsAllGradientsAtOnce) {
  const auto refused = [](const char* technique, void (*change)(TrainOptions&), int ranks = 2) {
    TrainOptions options = steps_of(test::golden_run(technique));
    options.optimizer_in_backward = true;
    change(options);
    return test::refusal(ranks, options);
  };
  EXPECT_THAT(refused("ddp", [](auto& o) { o.grad_clip = 1; }), HasSubstr("with --grad-clip 1"));
  EXPECT_THAT(refused("ddp", [](auto& o) { o.micro_batches = 2; }),
              HasSubstr("with --micro-batches 2"));
  EXPECT_THAT(refused("ddp", [](auto& o) { o.dtype = DType::f16; }),
              HasSubstr("with --loss-scaling torch"));
  EXPECT_THAT(refused("ddp", [](auto& o) { o.local_steps = 2; }),
              HasSubstr("with --local-steps 2"));
  EXPECT_THAT(refused("pipeline", [](auto&) {}), HasSubstr("with 2 pipeline stages"));
  EXPECT_THAT(refused(
                  "3d", [](auto& o) { o.schedule = "zb-h1"; }, 1),
              HasSubstr("with --schedule zb-h1"));
  EXPECT_THAT(refused("ps", [](auto& o) { o.optimizer = "adamw"; }),
              HasSubstr("with parameter servers"));
  EXPECT_THAT(refused(
                  "serial", [](auto&) {}, 1),
              HasSubstr("with train serial"));
  EXPECT_THAT(refused("zero", [](auto& o) { o.zero_stage = 1; }), HasSubstr("with ZeRO stage 1"));
  EXPECT_THAT(refused("fsdp", [](auto& o) { o.sharding = "per-parameter"; }),
              HasSubstr("with --sharding per-parameter"));
  EXPECT_THAT(refused("fsdp", [](auto& o) { o.optimizer = "adamw", o.offload = "optimizer"; }),
              HasSubstr("with --offload optimizer"));
}

}  // namespace
}  // namespace lockstep
