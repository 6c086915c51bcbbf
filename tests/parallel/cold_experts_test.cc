// Training with experts that no token ever chooses, and with ranks that have only such experts: equal to
// one rank in every step, and in the weights afterwards. New memory holds NaNs.
#include <gtest/gtest.h>

#include <map>

#include "collectives/base/device.h"
#include "models/gpt/router_biases.h"
#include "models/gpt/safetensors.h"
#include "parallel/tags/with_tags.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::run;

struct ColdPlan {
  const char* technique;
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const ColdPlan& plan, std::ostream* out) {
  *out << plan.technique << " on " << plan.ranks;
}

class ColdExperts : public testing::TestWithParam<ColdPlan> {
 protected:
  ColdExperts() {
    poison_host_memory(true);
    check_tags(true);
    write_weights();
  }
  ~ColdExperts() override {
    poison_host_memory(false);
    check_tags(false);
  }

  // The first two of four experts have a bias that no score outweighs: every token chooses both.
  TrainOptions cold_run(const std::string& technique) const {
    TrainOptions options = test::run_with_experts(technique);
    options.model = folder_.file("config.json");
    options.init = folder_.file("init.safetensors");
    options.steps = 3;
    options.global_batch = 7;
    options.validation_fraction = 0.2;
    return options;
  }
  TrainResult run_and_save(int ranks, TrainOptions options, std::vector<double>& weights) const {
    options.save = folder_.file("saved/weights.safetensors");
    std::filesystem::create_directories(folder_.file("saved"));
    TrainResult result = run(ranks, options);
    weights = test::weights_of(options.save);
    return result;
  }

 private:
  void write_weights() const {
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
    config.update({{"router_bias", true},
                   {"router_aux_loss_coef", 0.1},
                   {"n_shared_experts", 1},
                   {"expert_width", 64}});
    std::ofstream(folder_.file("config.json")) << config;
    TrainOptions options = test::run_with_experts("serial");
    options.model = folder_.file("config.json");
    options.init.clear();
    options.steps = 1;
    options.save = folder_.file("saved/weights.safetensors");
    std::filesystem::create_directories(folder_.file("saved"));
    run(1, options);
    const SafetensorsFile file(options.save);
    std::vector<std::vector<double>> values;
    for (const TensorEntry& tensor : file.tensors()) {
      values.emplace_back(static_cast<std::size_t>(tensor.count()));
      file.read(tensor, host_slice(std::span(values.back())));
      if (tensor.name == router_bias_name(1) || tensor.name == router_bias_name(3))
        values.back() = {2, 2, 0, 0};
    }
    std::vector<NamedSlice> all;
    for (std::size_t i = 0; i < values.size(); ++i)
      all.push_back(
          {file.tensors()[i].name, file.tensors()[i].shape, host_slice(std::span(values[i]))});
    write_safetensors(folder_.file("init.safetensors"), all);
  }

  test::Folder folder_;
};

TEST_P(ColdExperts, ChangeNoResult) {
  const auto& [technique, ranks, set] = GetParam();
  TrainOptions options = cold_run(technique);
  set(options);
  std::vector<double> expected, got;
  const TrainResult one = run_and_save(1, cold_run("serial"), expected),
                    other = run_and_save(ranks, options, got);
  EXPECT_TRUE(theory_holds(one));
  EXPECT_TRUE(theory_holds(other));
  test::expect_same_steps(other, one, 1e-10);
  EXPECT_NEAR(other.validation.at(0).loss, one.validation.at(0).loss, 1e-10);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    constexpr int tokens = 7 * 32;
    for (const std::vector<std::int64_t>& of_experts : other.steps[i].tokens_of_experts)
      EXPECT_EQ(of_experts, (std::vector<std::int64_t>{tokens, tokens, 0, 0}));
    EXPECT_NEAR(other.steps[i].aux_loss.value(), one.steps[i].aux_loss.value(), 1e-10);
  }
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-10) << i;
}

// Of two ranks that divide the experts, the second one is cold; of four, the last two.
INSTANTIATE_TEST_SUITE_P(
    Experts, ColdExperts,
    test::sampled<ColdPlan>({
        {"moe", 2, [](TrainOptions& o) { o.recompute = "full"; }},
        {"moe", 4, [](TrainOptions& o) { o.zero_stage = 1; }},
        {"ddp", 2, [](TrainOptions& o) { o.recompute = "selective"; }},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.token_dispatcher = "two_level"; }},
        {"moe", 4,
         [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 3, o.recompute = "full"; }},
        {"fsdp", 3, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 3, o.schedule = "zb-h1";
         }},
        {"moe", 4, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2; }},
        {"moe", 4,
         [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true; }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.expert_tensor_ranks = 1;
         }},
        {"moe", 4, [](TrainOptions& o) { o.mesh_lengths[Axis::cp] = 2, o.zero_stage = 2; }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace lockstep
