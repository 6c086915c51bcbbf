// Over which tokens the balancing loss takes its means: that of the global batch is the same under
// every plan that allows it, that of micro-batches under plans with the same micro-batches. New memory
// holds NaNs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::run;

class BalanceLevels : public testing::Test {
 protected:
  BalanceLevels() { poison_host_memory(true); }
  ~BalanceLevels() override { poison_host_memory(false); }

  // A model whose balancing loss counts much.
  TrainOptions level_run(const std::string& technique, const std::string& type) const {
    const std::string path = folder_.file("config.json");
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
    config["router_aux_loss_coef"] = 0.5;
    std::ofstream(path) << config;
    TrainOptions options = test::run_with_experts(technique);
    options.model = path;
    options.steps = 3;
    options.global_batch = 7;
    options.router_balance_type = type;
    return options;
  }
  static void expect_same(const TrainResult& result, const TrainResult& expected) {
    EXPECT_TRUE(theory_holds(result));
    test::expect_same_steps(result, expected, 1e-10);
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_NEAR(*result.steps[i].aux_loss / *expected.steps[i].aux_loss, 1, 1e-10) << i;
      EXPECT_EQ(result.steps[i].tokens_of_experts, expected.steps[i].tokens_of_experts) << i;
    }
  }

 private:
  test::Folder folder_;
};

struct LevelPlan {
  const char* technique;
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const LevelPlan& plan, std::ostream* out) {
  *out << plan.technique << " on " << plan.ranks;
}
class GlobalBalance : public BalanceLevels, public testing::WithParamInterface<LevelPlan> {};

// One micro-batch of one rank is the global batch, and has its own code.
TEST_P(GlobalBalance, EqualsOneMicroBatchOfOneRank) {
  const auto& [technique, ranks, set] = GetParam();
  const TrainResult one = run(1, level_run("serial", "aux_loss"));
  TrainOptions options = level_run(technique, "global_aux_loss");
  set(options);
  expect_same(run(ranks, options), one);
  // It is another loss than that of sequences.
  const TrainResult other = run(1, level_run("serial", "seq_aux_loss"));
  EXPECT_GT(std::abs(*other.steps[0].aux_loss / *one.steps[0].aux_loss - 1), 1e-3);
  EXPECT_GT(std::abs(other.steps[0].grad_norm / one.steps[0].grad_norm - 1), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, GlobalBalance,
    test::sampled<LevelPlan>({
        {"serial", 1, [](TrainOptions&) {}},
        {"ddp", 3, [](TrainOptions& o) { o.recompute = "full"; }},
        {"zero", 2, [](TrainOptions& o) { o.zero_stage = 2; }},
        {"fsdp", 4, [](TrainOptions& o) { o.replicas = 2; }},
        {"pipeline", 2,
         [](TrainOptions& o) { o.schedule = "gpipe", o.micro_batches = 3, o.recompute = "full"; }},
        {"pipeline", 4, [](TrainOptions&) {}},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 4, o.zero_stage = 1; }},
        {"3d", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.schedule = "gpipe", o.micro_batches = 2;
           o.zero_stage = 3;
         }},
        {"tp", 2, [](TrainOptions&) {}},
        {"sp", 2, [](TrainOptions&) {}},
        {"cp", 2, [](TrainOptions&) {}},
        {"moe", 4,
         [](TrainOptions& o) {
           o.expert_ranks = 2, o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true;
         }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

TEST_F(BalanceLevels, TheGlobalBatchAndBiasesAddUpTheChoicesOnce) {
  const auto sent = [&](double rate, const char* type) {
    TrainOptions options = level_run("ddp", type);
    options.router_bias_rate = rate;
    const TrainResult result = run(2, options);
    EXPECT_TRUE(theory_holds(result));
    const auto& traffic = result.ranks.front().traffic;
    const auto found = traffic.find("choices of experts");
    return found == traffic.end() ? Volume{} : found->second;
  };
  EXPECT_EQ(sent(0, "aux_loss"), Volume{});
  EXPECT_EQ(sent(0.1, "aux_loss").sent_bytes, 2 * 4 * 8);
  EXPECT_EQ(sent(0.1, "global_aux_loss"), sent(0.1, "aux_loss"));
  EXPECT_EQ(sent(0, "global_aux_loss"), sent(0.1, "aux_loss"));
}

// A scale that is a power of two changes no bit, if it is that of all losses.
TEST_F(BalanceLevels, AreScaledAsTheLossIs) {
  for (const auto& [technique, ranks, type] :
       {std::tuple("serial", 1, "seq_aux_loss"), std::tuple("pipeline", 2, "aux_loss"),
        std::tuple("moe", 2, "global_aux_loss")}) {
    TrainOptions plain = level_run(technique, type);
    plain.router_z_loss = 0.1;
    TrainOptions scaled = plain;
    scaled.loss_scaling = "torch";
    scaled.initial_loss_scale = 1024;
    const TrainResult expected = run(ranks, plain), result = run(ranks, scaled);
    ASSERT_EQ(result.steps.size(), expected.steps.size());
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_EQ(result.steps[i].loss_scale, 1024) << technique;
      EXPECT_EQ(result.steps[i].loss, expected.steps[i].loss) << technique;
      EXPECT_EQ(result.steps[i].grad_norm, expected.steps[i].grad_norm) << technique;
    }
  }
}

TEST_F(BalanceLevels, OfMicroBatchesDependOnTheCutAlone) {
  TrainOptions two = level_run("serial", "aux_loss");
  two.global_batch = 8;
  TrainOptions one = two, ranks = two, stages = two;
  two.micro_batches = stages.micro_batches = 2;
  ranks.technique = "fsdp";
  stages.technique = "pipeline";
  const TrainResult expected = run(1, two);
  expect_same(run(2, ranks), expected);
  expect_same(run(2, stages), expected);
  EXPECT_GT(std::abs(*run(1, one).steps[0].aux_loss / *expected.steps[0].aux_loss - 1), 1e-5);
}

TEST_F(BalanceLevels, WhatCannotBeIsRefused) {
  const auto refused = [&](const char* technique, int ranks, void (*set)(TrainOptions&)) {
    TrainOptions options = level_run(technique, "global_aux_loss");
    options.global_batch = 8;
    set(options);
    return test::refusal(ranks, options);
  };
  const auto early = testing::HasSubstr("go back before all have gone forward");
  EXPECT_THAT(refused("serial", 1, [](TrainOptions& o) { o.micro_batches = 2; }), early);
  EXPECT_THAT(refused("fsdp", 2, [](TrainOptions& o) { o.micro_batches = 2; }), early);
  EXPECT_THAT(refused("pipeline", 2, [](TrainOptions& o) { o.micro_batches = 2; }), early);
  EXPECT_THAT(refused("pipeline", 2, [](TrainOptions& o) { o.router_balance_type = "sinkhorn"; }),
              testing::HasSubstr("--router-load-balancing-type"));
  EXPECT_THAT(refused("serial", 1, [](TrainOptions& o) { o.model = "nano", o.init.clear(); }),
              testing::HasSubstr("options of routers for a model without experts"));
}

}  // namespace
}  // namespace lockstep
