// Balancing experts without a loss: under every plan the biases are those that the tokens of each step
// lead to, to the last bit. New memory holds NaNs.
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "models/gpt/router_biases.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/convert.h"
#include "parallel/checkpoint/index.h"
#include "parallel/rank/router_balance.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::run;

class Biases : public testing::Test {
 protected:
  Biases() { poison_host_memory(true); }
  ~Biases() override { poison_host_memory(false); }

  // Routes a third of its tokens otherwise within three steps.
  static TrainOptions balanced_run(const std::string& technique) {
    TrainOptions options = test::run_with_experts(technique);
    options.steps = 3;
    options.router_bias_rate = 0.05;
    return options;
  }
  // The same with the weights saved, and what was saved of its biases.
  RouterBiases biases_after(int ranks, TrainOptions options, TrainResult& result) {
    options.save = folder_.file("saved.safetensors");
    result = run(ranks, options);
    EXPECT_TRUE(theory_holds(result));
    return biases_in(options.save);
  }
  static RouterBiases biases_in(const std::string& path) {
    const GptConfig config =
        read_gpt_config(std::filesystem::path(path).replace_filename("config.json"));
    EXPECT_TRUE(config.experts.bias);
    return WeightsReader(path, whole_parameters(config)).biases();
  }
  // bias += rate * sign(mean - tokens) after each step, of the layers 1 and 3 of the golden run.
  static RouterBiases by_hand(const std::vector<StepRecord>& steps, double rate) {
    RouterBiases biases = {{1, std::vector<double>(4)}, {3, std::vector<double>(4)}};
    for (const StepRecord& step : steps)
      for (const int layer : {1, 3}) {
        const std::vector<std::int64_t>& tokens = step.tokens_of_experts.at(layer / 2);
        const double mean = static_cast<double>(tokens[0] + tokens[1] + tokens[2] + tokens[3]) / 4;
        for (std::size_t e = 0; e < 4; ++e) {
          const auto own = static_cast<double>(tokens[e]);
          if (own != mean && !step.skipped) biases[layer][e] += own < mean ? rate : -rate;
        }
      }
    return biases;
  }

  test::Folder folder_;
};

struct BiasedPlan {
  const char* technique;
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const BiasedPlan& plan, std::ostream* out) {
  *out << plan.technique << " on " << plan.ranks;
}

class BiasedPlans : public Biases, public testing::WithParamInterface<BiasedPlan> {};

TEST_P(BiasedPlans, HaveTheBiasesOfTheirTokens) {
  const auto& [technique, ranks, set] = GetParam();
  TrainOptions options = balanced_run(technique);
  set(options);
  TrainResult result, one;
  const RouterBiases biases = biases_after(ranks, options, result);
  EXPECT_EQ(biases, by_hand(result.steps, options.router_bias_rate));
  if (options.dtype != DType::f64) return;
  EXPECT_EQ(biases_after(1, balanced_run("serial"), one), biases);
  test::expect_same_steps(result, one, 1e-10);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(result.steps[i].tokens_of_experts, one.steps[i].tokens_of_experts) << i;
    EXPECT_NEAR(result.steps[i].router_entropy, one.steps[i].router_entropy, 1e-10) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Experts, BiasedPlans,
    test::sampled<BiasedPlan>({
        {"serial", 1, [](TrainOptions& o) { o.recompute = "full", o.micro_batches = 4; }},
        {"ddp", 3, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"zero", 4, [](TrainOptions& o) { o.zero_stage = 2; }},
        {"fsdp", 4, [](TrainOptions& o) { o.replicas = 2, o.recompute = "full"; }},
        {"zero", 2, [](TrainOptions& o) { o.zero_stage = 1, o.dtype = DType::bf16; }},
        {"ddp", 2, [](TrainOptions& o) { o.dtype = DType::f16; }},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.recompute = "full"; }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.recompute = "full"; }},
        {"pipeline", 4, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "dualpipe-v"; }},
        {"3d", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 2, o.zero_stage = 1;
           o.recompute = "selective";
         }},
        {"sp", 2, [](TrainOptions&) {}},
        {"cp", 2, [](TrainOptions&) {}},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.mesh_lengths[Axis::tp] = 2; }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

TEST_F(Biases, EvaluationChangesNone) {
  TrainOptions options = balanced_run("ddp");
  options.validation_fraction = 0.1;
  options.eval_interval = 1;
  TrainResult result;
  const RouterBiases biases = biases_after(2, options, result);
  EXPECT_EQ(result.validation.size(), 3);
  for (const StepRecord& step : result.steps)
    for (const std::vector<std::int64_t>& tokens : step.tokens_of_experts)
      EXPECT_EQ(tokens[0] + tokens[1] + tokens[2] + tokens[3], 2 * 8 * 32);
  EXPECT_EQ(biases, by_hand(result.steps, options.router_bias_rate));
}

TEST_F(Biases, AStepThatIsSkippedChangesNone) {
  TrainOptions options = balanced_run("ddp");
  options.steps = 8;
  options.dtype = DType::f16;
  options.loss_scaling = "torch";
  options.initial_loss_scale = 1 << 24;  // overflows at first
  TrainResult result;
  const RouterBiases biases = biases_after(2, options, result);
  EXPECT_TRUE(result.steps.front().skipped);
  EXPECT_FALSE(result.steps.back().skipped);
  EXPECT_EQ(biases, by_hand(result.steps, options.router_bias_rate));
}

// At first some expert gets every token, and a small learning rate leaves it so: the mean of its excess
// over the mean is below half of that in the last steps with biases, and not without.
TEST_F(Biases, BalanceARouterThatPrefersOneExpert) {
  const auto excess = [](const StepRecord& step) {
    double most = 0;
    for (const std::vector<std::int64_t>& tokens : step.tokens_of_experts) {
      const auto sum = static_cast<double>(tokens[0] + tokens[1] + tokens[2] + tokens[3]);
      most = std::max(most, 4 * static_cast<double>(std::ranges::max(tokens)) / sum - 1);
    }
    return most;
  };
  const auto at_the_end = [&](double rate) {
    TrainOptions options = balanced_run("ddp");
    options.steps = 45;
    options.order = "random";
    options.learning_rate = 1e-6;
    options.router_bias_rate = rate;
    const TrainResult result = run(2, options);
    EXPECT_GT(excess(result.steps.front()), 0.95);
    double sum = 0;
    for (std::size_t step = 35; step < 45; ++step) sum += excess(result.steps[step]) / 10;
    return sum;
  };
  EXPECT_GT(at_the_end(0), 0.9);
  EXPECT_LT(at_the_end(0.01), 0.45);
}

TEST_F(Biases, SurviveCheckpointsUnderAnotherPlan) {
  TrainOptions whole = balanced_run("serial");
  whole.steps = 4;
  TrainResult expected, first, second;
  const RouterBiases biases = biases_after(1, whole, expected);
  TrainOptions begin = whole;
  begin.technique = "fsdp";
  begin.checkpoint = folder_.file("run");
  begin.checkpoint_interval = 2;
  biases_after(2, begin, first);
  const std::string halfway = folder_.file("run") + "/step-00000002";
  EXPECT_EQ(read_index(halfway).router_biases,
            by_hand({expected.steps.begin(), expected.steps.begin() + 2}, whole.router_bias_rate));
  TrainOptions end = whole;
  end.technique = "pipeline";
  end.micro_batches = 2;
  end.resume = halfway;
  EXPECT_EQ(biases_after(2, end, second), biases);
  EXPECT_EQ(second.steps.back().tokens_of_experts, expected.steps.back().tokens_of_experts);

  convert_checkpoint(halfway, read_index(halfway), folder_.file("converted"), 1, DType::f64);
  EXPECT_EQ(read_index(folder_.file("converted")).router_biases, read_index(halfway).router_biases);
  export_weights(halfway, read_index(halfway), folder_.file("exported.safetensors"), DType::f32);
  EXPECT_EQ(biases_in(folder_.file("exported.safetensors")), read_index(halfway).router_biases);

  // A checkpoint without biases may go on with them: they begin with zero.
  TrainOptions plain = begin;
  plain.router_bias_rate = 0;
  plain.checkpoint = folder_.file("plain");
  run(2, plain);
  end.resume = folder_.file("plain") + "/step-00000002";
  const RouterBiases begun = biases_after(2, end, second);
  EXPECT_EQ(begun, by_hand(second.steps, end.router_bias_rate));
  plain.checkpoint.clear();
  plain.resume = halfway;
  EXPECT_NE(test::refusal(2, plain).find("has biases of routers, and the run has none"),
            std::string::npos);
}

// A run from saved weights begins with their biases; without a rate it keeps them.
TEST_F(Biases, ComeBackFromSavedWeights) {
  TrainResult result;
  TrainOptions options = balanced_run("serial");
  const RouterBiases biases = biases_after(1, options, result);
  options.init = folder_.file("saved.safetensors");
  TrainOptions plain = options;
  plain.router_bias_rate = 0;
  EXPECT_NE(test::refusal(1, plain).find(
                "'h.1.mlp.router.bias', but the model's routers have no bias; add "
                "--router-bias-update-rate"),
            std::string::npos);
  plain.model = folder_.file("config.json");
  plain.technique = "pipeline";
  EXPECT_EQ(biases_after(2, plain, result), biases);
  plain.init = test::golden + "_moe/init.safetensors";
  EXPECT_NE(test::refusal(2, plain).find("no tensor 'h.1.mlp.router.bias'"), std::string::npos);
  // Two more steps from three.
  options.init = folder_.file("saved.safetensors");
  options.steps = 2;
  const RouterBiases later = biases_after(1, options, result);
  for (const auto& [layer, more] : by_hand(result.steps, options.router_bias_rate))
    for (std::size_t e = 0; e < more.size(); ++e)
      EXPECT_NEAR(later.at(layer)[e], biases.at(layer)[e] + more[e], 1e-15);
}

TEST_F(Biases, AreCheckedInFiles) {
  const GptConfig config = gpt_config(test::golden + "_moe/config.json");
  const std::vector<Parameter> whole = whole_parameters(config);
  const auto layer = [&](const char* name, Count experts) {
    return layer_of_bias(name, {.name = name, .dtype = DType::f64, .shape = {experts}}, whole,
                         "file");
  };
  EXPECT_EQ(layer("h.3.mlp.router.bias", 4), 3);
  for (const char* other : {"h.2.mlp.router.bias", "h.9999999999999.mlp.router.bias",
                            "h.3.mlp.router.weight", "h.3.mlp.router.bias.x", "mlp.router.bias"})
    EXPECT_FALSE(layer(other, 4)) << other;
  EXPECT_THROW(layer("h.3.mlp.router.bias", 5), Error);
}

TEST(RouterBalance, DifferentBiasesOfTwoRanksAreAnError) {
  const ExpertConfig config{.number = 2, .per_token = 1, .width = 1, .bias_rate = 1};
  const auto collected = [&](double of_rank_1) {
    RouterBiases all;
    launch({.ranks = 2, .timeout_s = 30, .fault = {}}, [&](RankContext& context) {
      Router router(config);
      const int rank = context.world.rank();
      router.set_bias({0.5, rank == 1 ? of_rank_1 : 0.25});
      const RouterBiases here =
          all_biases(context.world, config, {{.layer = 7, .router = &router}});
      if (rank == 0) all = here;
    });
    return all;
  };
  EXPECT_EQ(collected(0.25), (RouterBiases{{7, {0.5, 0.25}}}));
  try {
    collected(0.25 + 1e-16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("another h.7.mlp.router.bias"), std::string::npos);
  }
}

TEST(RouterBalance, WantsExpertsAndARate) {
  TrainOptions options = test::run_with_experts("serial");
  options.router_bias_rate = -1;
  EXPECT_NE(test::refusal(1, options).find("--router-bias-update-rate"), std::string::npos);
  options.router_bias_rate = 0.1;
  options.model = "nano";
  options.init.clear();
  EXPECT_NE(test::refusal(1, options).find("options of routers for a model without experts"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
