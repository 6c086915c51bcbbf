// Checkpoints of plans whose ranks keep what no other rank has: error feedback, and replicas that take their steps alone.
// A resumed run has the bits of one that was not interrupted, wherever it was; another plan is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "parallel/checkpoint/convert.h"
#include "parallel/checkpoint/index.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using testing::HasSubstr;

// Resumes after each step of a run, which ends with the same bits.
void expect_resumes_anywhere(const Case& one) {
  SCOPED_TRACE(one.name);
  const test::Folder folder;
  TrainOptions options = one.options;
  options.checkpoint = folder.file("run");
  options.checkpoint_interval = 1;
  options.save = folder.file("whole.safetensors");
  const TrainResult whole = test::run(one.ranks, options);
  EXPECT_TRUE(theory_holds(whole));
  if (options.loss_scale_window > 0) {
    // Steps are skipped between others.
    const auto taken = std::ranges::find(whole.steps, false, &StepRecord::skipped);
    const auto skipped = std::ranges::find(taken, whole.steps.end(), true, &StepRecord::skipped);
    EXPECT_NE(std::ranges::find(skipped, whole.steps.end(), false, &StepRecord::skipped),
              whole.steps.end());
  }
  const std::vector<double> weights = test::weights_of(options.save);
  options.checkpoint.clear();
  options.checkpoint_interval = 0;
  options.save = folder.file("resumed.safetensors");
  for (int step = 1; step < options.steps; ++step) {
    SCOPED_TRACE(step);
    options.resume = folder.file(fmt::format("run/step-{:08}", step));
    const TrainResult resumed = test::run(one.ranks, options);
    EXPECT_TRUE(theory_holds(resumed));
    ASSERT_EQ(std::ssize(resumed.steps) + step, std::ssize(whole.steps));
    for (std::size_t i = 0; i < resumed.steps.size(); ++i) {
      const StepRecord& expected = whole.steps[i + static_cast<std::size_t>(step)];
      EXPECT_EQ(resumed.steps[i].loss, expected.loss) << i;
      EXPECT_EQ(resumed.steps[i].skipped, expected.skipped) << i;
      if (!expected.skipped) {
        EXPECT_EQ(resumed.steps[i].grad_norm, expected.grad_norm) << i;
      }
    }
    EXPECT_EQ(test::weights_of(options.save), weights);
  }
}

TrainOptions alone(int steps_alone, int fragments, int delay, double mix) {
  TrainOptions options = test::golden_run("ddp");
  options.steps = LOCKSTEP_THOROUGH ? 7 : 4;
  options.local_steps = steps_alone;
  options.outer_fragments = fragments;
  options.outer_delay = delay;
  options.outer_mix = mix;
  return options;
}

class OwnStates : public testing::TestWithParam<Case> {};
TEST_P(OwnStates, AreResumedBitByBit) { expect_resumes_anywhere(GetParam()); }

std::vector<Case> cases_of_own_states() {
  std::vector<Case> all = {
      {"window", 2, alone(3, 1, 0, 0)},     {"fragments", 3, alone(4, 2, 2, 0.5)},
      {"compressed", 2, alone(2, 1, 0, 0)}, {"sgd", 2, alone(3, 1, 3, 0)},
      {"alone", 1, alone(3, 1, 0, 0)},      {"split", 4, alone(3, 1, 1, 0)}};
  all[2].options.exchange = "topk:0.1";
  all[3].options.optimizer = "sgd";
  all[5].options.technique = "3d";
  all[5].options.mesh_lengths[Axis::pp] = 2;
  for (const char* method : {"onebit", "topk:0.1", "powersgd:2"}) {
    TrainOptions ddp = test::few_steps("ddp"), narrow = test::few_steps("ddp", DType::bf16),
                 split = test::mesh(2, 2, 0);
    split.sequence_parallel = true;
    ddp.exchange = narrow.exchange = split.exchange = method;
    ddp.first_bucket_bytes = ddp.bucket_bytes = 50000;
    const std::string name = std::string(method).substr(0, 4);
    all.push_back({name, 3, ddp});
    all.push_back({name + "_bf16", 2, narrow});
    all.push_back({name + "_split", 8, split});
    TrainOptions scaled = test::few_steps("ddp", DType::f16);
    scaled.exchange = method;
    scaled.initial_loss_scale = 1 << 20;  // overflows at first, and after each two steps
    scaled.loss_scale_window = 2;
    scaled.steps = 10;
    all.push_back({name + "_f16", 2, scaled});
  }
  return all;
}
// In the warm-up, and after it.
TEST(OwnStates, AreResumedInAWarmUp) {
  Case one{"warm_up", 2, test::few_steps("ddp")};
  one.options.exchange = "onebit";
  one.options.exchange_warm_up = 2;
  expect_resumes_anywhere(one);
}

INSTANTIATE_TEST_SUITE_P(Plans, OwnStates, test::sampled(cases_of_own_states()),
                         [](const auto& one) { return one.param.name; });

// The common weights are those that every tool reads.
TEST(OwnStates, AreNoPartOfTheWeights) {
  const test::Folder folder;
  Case one{"window", 2, alone(3, 1, 0, 0)};
  one.options.steps = 4;
  one.options.save = folder.file("saved.safetensors");
  one.options.checkpoint = folder.file("run");
  test::run(one.ranks, one.options);
  const std::string last = folder.file("run/step-00000004");
  const CheckpointIndex index = read_index(last);
  EXPECT_TRUE(index.has_own_state());
  export_weights(last, index, folder.file("exported.safetensors"), DType::f64);
  EXPECT_EQ(test::weights_of(folder.file("exported.safetensors")),
            test::weights_of(one.options.save));
  try {
    convert_checkpoint(last, index, folder.file("converted"), 1, DType::f64);
    FAIL() << "converted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("each rank alone kept"));
  }
}

TEST(OwnStates, AreRefusedByOtherPlans) {
  const test::Folder folder;
  TrainOptions options = alone(3, 1, 0, 0);
  options.steps = 2;
  options.checkpoint = folder.file("run");
  test::run(2, options);
  options.checkpoint.clear();
  options.steps = 4;
  options.resume = folder.file("run");
  const auto refused = [&](int ranks, const auto& change) {
    TrainOptions other = options;
    change(other);
    return test::refusal(ranks, other);
  };
  EXPECT_EQ(refused(2, [](auto& o) { o.outer_learning_rate = 0.5; }), "accepted");
  EXPECT_THAT(refused(4, [](auto&) {}), HasSubstr("written with ranks 2, and this plan has 4"));
  EXPECT_THAT(refused(2, [](auto& o) { o.local_steps = 2; }), HasSubstr("local_steps 3"));
  EXPECT_THAT(refused(2, [](auto& o) { o.local_steps.reset(); }), HasSubstr("this plan has none"));
  EXPECT_THAT(refused(2, [](auto& o) { o.outer_momentum = 0; }), HasSubstr("outer_momentum 0.9"));
  EXPECT_THAT(refused(2, [](auto& o) { o.optimizer = "sgd"; }), HasSubstr("optimizer \"adamw\""));
  EXPECT_THAT(refused(2, [](auto& o) { o.exchange = "topk:0.1"; }), HasSubstr("exchange \"none\""));

  TrainOptions compressed = test::few_steps("ddp");
  compressed.steps = 2;
  compressed.checkpoint = folder.file("compressed");
  const test::Folder dense;
  TrainOptions plain = compressed;
  plain.checkpoint = dense.file("run");
  test::run(2, plain);
  compressed.exchange = "onebit";
  test::run(2, compressed);
  options = compressed;
  options.steps = 4;
  options.checkpoint.clear();
  options.resume = folder.file("compressed");
  EXPECT_THAT(refused(4, [](auto&) {}), HasSubstr("written with ranks 2"));
  EXPECT_THAT(refused(2, [](auto& o) { o.exchange = "int8"; }), HasSubstr("exchange \"onebit\""));
  EXPECT_THAT(refused(2, [](auto& o) { o.bucket_bytes = 1000; }), HasSubstr("bucket_bytes"));
  // And nothing is made up where nothing was kept.
  EXPECT_THAT(refused(2, [&](auto& o) { o.resume = dense.file("run"); }),
              HasSubstr("exchange \"none\", and this plan has \"onebit\""));
}

}  // namespace
}  // namespace lockstep
