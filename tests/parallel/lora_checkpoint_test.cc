// Checkpoints of runs that train adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/lora_runs.h"

namespace lockstep {
namespace {

using test::frozen_run;
using test::lora_run;
using test::LoraCase;
using test::refusal;
using test::run;
using testing::HasSubstr;

// A checkpoint of each plan, taken by the next one. It holds adapters only.
TEST(LoraCheckpoints, AreTakenByAnyPlan) {
  const test::Folder folder;
  std::vector<LoraCase> all = test::lora_cases();
  std::erase_if(all, [](const LoraCase& c) {
    const std::vector<std::string> chosen = {"serial", "ddp",  "sp",        "zb_v",
                                             "zero2",  "rows", "mesh_zero3"};
    return std::ranges::find(chosen, c.name) == chosen.end();
  });
  ASSERT_EQ(all.size(), 7U);
  const auto four_steps = [](const LoraCase& c) {
    TrainOptions options = c.with(lora_run(c.technique));
    options.steps = 4;
    return options;
  };
  const TrainResult whole = run(1, four_steps(all[0]));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const LoraCase& next = all[(i + 1) % all.size()];
    SCOPED_TRACE(all[i].name + ", then " + next.name);
    TrainOptions saving = four_steps(all[i]), resuming = four_steps(next);
    saving.checkpoint = folder.file(all[i].name);
    saving.checkpoint_interval = 2;
    saving.checkpoint_async = i % 2 == 0;
    const TrainResult saved = run(all[i].ranks, saving);
    EXPECT_TRUE(theory_holds(saved));
    EXPECT_EQ(saved.checkpoints.front().bytes, 3 * test::lora_elements * 8);
    resuming.resume = saving.checkpoint + "/step-00000002";
    resuming.lora_init.clear();
    const TrainResult resumed = run(next.ranks, resuming);
    ASSERT_EQ(resumed.steps.size(), 2U);
    for (const StepRecord& step : resumed.steps) {
      const StepRecord& expected = whole.steps[static_cast<std::size_t>(step.step)];
      EXPECT_NEAR(step.loss / expected.loss, 1, 1e-10);
      EXPECT_NEAR(step.grad_norm / expected.grad_norm, 1, 1e-10);
    }
  }
  // Other adapters, other weights, or none.
  const auto refused = [&](auto change) {
    TrainOptions options = four_steps(all[1]);
    options.resume = folder.file(all[0].name) + "/step-00000002";
    options.lora_init.clear();
    change(options);
    return refusal(all[1].ranks, options);
  };
  EXPECT_THAT(refused([](TrainOptions& o) { o.lora_alpha = 9; }),
              HasSubstr("has adapters: --lora 4 --lora-alpha 8 --lora-targets c_attn"));
  EXPECT_THAT(refused([](TrainOptions& o) { o.lora_base = "int8"; }),
              HasSubstr("--lora-targets c_attn --lora-base none"));
  EXPECT_THAT(refused([](TrainOptions& o) { o.lora_dropout = 0.5; }), HasSubstr("has adapters"));
  EXPECT_THAT(refused([](TrainOptions& o) { o.lora_rank = 0; }), HasSubstr("has adapters"));
  EXPECT_THAT(refused([](TrainOptions& o) { o.init.clear(); }), HasSubstr("of other weights"));
  TrainOptions plain = frozen_run("ddp");
  plain.steps = 4;
  plain.checkpoint = folder.file("plain");
  run(2, plain);
  EXPECT_THAT(refused([&](TrainOptions& o) { o.resume = plain.checkpoint, o.steps = 5; }),
              HasSubstr("has no adapters"));
}

}  // namespace
}  // namespace lockstep
