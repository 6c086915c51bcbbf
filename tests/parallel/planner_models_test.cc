// Models and their layers: against another implementation of the same model, and against closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/planner/pass_cost.h"
#include "tests/parallel/planner_cases.h"

namespace lockstep {
namespace {

using test::a_case;
using test::deepseek;
using test::gpt2;
using test::llama;
using test::megatron_plan;
using test::mixtral;
using test::ordered_json;
using test::read;
using testing::HasSubstr;

// Numbers of parameters as the models' own files have them: Mixtral 8x7B, DeepSeek-V2, V2-Lite and V3 (this one
// without its router's biases and its second head), Qwen3-235B-A22B.
TEST(PlannerModels, HaveTheParametersOfTheirFiles) {
  const auto parameters = [](const ordered_json& config) {
    return transformer_from(config, "model").parameters();
  };
  EXPECT_EQ(parameters(mixtral(32)), 46'702'792'704);
  ordered_json model = deepseek(128, 5120, 12288, 1536, 160, 60);
  EXPECT_EQ(parameters(model), 235'741'434'880);
  model = deepseek(16, 2048, 10944, 1408, 64, 27);
  model["q_lora_rank"] = nullptr;
  EXPECT_EQ(parameters(model), 15'706'484'224);
  model = deepseek(128, 7168, 18432, 2048, 256, 61);
  model.update({{"model_type", "deepseek_v3"},
                {"num_experts_per_tok", 8},
                {"n_shared_experts", 1},
                {"first_k_dense_replace", 3},
                {"vocab_size", 129280}});
  EXPECT_EQ(parameters(model), 671'026'404'352);
  model = llama(64, 4, 4096, 12288, 94);
  model.update({{"model_type", "qwen3_moe"},
                {"head_dim", 128},
                {"num_experts", 128},
                {"num_experts_per_tok", 8},
                {"moe_intermediate_size", 1536},
                {"vocab_size", 151936}});
  EXPECT_EQ(parameters(model), 235'093'634'560);
}

// What a search writes of a model is a model of the same size; keys without a meaning here are left out.
TEST(PlannerModels, AreWhatTheirKeysSay) {
  for (ordered_json model : {gpt2(32, 1024, 6), llama(32, 8, 4096, 14336, 4), mixtral(4),
                             deepseek(16, 2048, 10944, 1408, 64, 6)}) {
    const ordered_json keys = transformer_keys(model, "model");
    if (model.contains("kv_lora_rank")) model.erase("num_key_value_heads");  // all heads have both
    EXPECT_EQ(keys, model);
    model["architectures"] = {"a model"};
    EXPECT_EQ(transformer_keys(model, "model"), keys);
  }
  const auto refused = [](ordered_json model, const char* key, ordered_json value) {
    model[key] = std::move(value);
    try {
      transformer_from(model, "model");
    } catch (const Error& error) {
      return refusal(error);
    }
    return std::string("accepted");
  };
  const ordered_json experts = deepseek(16, 2048, 10944, 1408, 64, 6);
  EXPECT_THAT(refused(mixtral(4), "num_local_experts", nullptr),
              HasSubstr("without a number of experts"));
  EXPECT_THAT(refused(experts, "first_k_dense_replace", 6),
              HasSubstr("none of the 6 layers has experts"));
  EXPECT_THAT(refused(experts, "num_experts", 8), HasSubstr("another number of experts"));
  EXPECT_THAT(refused(experts, "moe_layer_freq", 0), HasSubstr("\"moe_layer_freq\" is 0"));
  EXPECT_THAT(refused(experts, "sliding_window", 64), HasSubstr("\"sliding_window\""));
  EXPECT_THAT(refused(experts, "mlp_only_layers", 3), HasSubstr("\"mlp_only_layers\""));
  EXPECT_THAT(refused(experts, "shared_expert_intermediate_size", 64),
              HasSubstr("as wide as the others"));
  EXPECT_THAT(refused(gpt2(32, 1024, 6), "kv_lora_rank", 64), HasSubstr("\"kv_lora_rank\""));
  EXPECT_THAT(refused(experts, "quantization_config", {{"quant_method", "gptq"}}),
              HasSubstr("16 bits"));
  EXPECT_EQ(refused(experts, "quantization_config", {{"quant_method", "fp8"}}), "accepted");
  EXPECT_THAT(refused(experts, "n_routed_experts", 100'000'000), HasSubstr("goes up to"));
  ordered_json further = a_case(experts, 8, {{"ep", 8}}, "h100-dgx", "megatron-core-2025");
  further["model"]["num_nextn_predict_layers"] = 1;
  EXPECT_EQ(read(further).arrangement.assumptions,
            std::vector<std::string>{"num_nextn_predict_layers is 0"});
}

// A layer with experts: FLOPs of the router, of K experts for each token and of the shared one; each rank sends
// K rows of its tokens twice in each direction, to the ranks of its node over NVLink, meanwhile to others
// over its NIC. Experts are divided by ep, and their states by as many replicas as are left.
TEST(PlannerExperts, EqualTheirClosedForms) {
  ordered_json plan = {{"ep", 16}, {"global_batch", 32}, {"sequence_length", 4096}, {"zero", 1}};
  PlanCase c = read(
      a_case(deepseek(128, 5120, 12288, 1536, 160, 4), 32, plan, "h100-dgx", "megatron-core-2025"));
  LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
  const double s = 4096, h = 5120, f = 1536, e = 160, k = 6, peak = c.cluster.peak_16bit;
  const double attention = h * 1536 + 1536 * 128 * 192 + h * 576 + 512 * 128 * 256 + 128 * 128 * h;
  const double scores = 2 * 128 * s * s * (192 + 128) / 2;
  EXPECT_NEAR(costs.layer.forward.at_peak, (2 * s * (attention + 3 * h * 12288) + scores) / peak,
              1e-12);
  EXPECT_NEAR(costs.expert_layer.forward.at_peak,
              (2 * s * (attention + h * e + (k + 2) * 3 * h * f) + scores) / peak, 1e-12);
  EXPECT_NEAR(costs.expert_layer.weight_gradient.at_peak,
              2 * s * (attention + h * e + (k + 2) * 3 * h * f) / peak, 1e-12);
  const double bytes = 2 * s * k * h, nic = c.profile.nic_efficiency * 50e9;
  EXPECT_NEAR(costs.expert_layer.forward.expert, 2 * (c.profile.nic_latency + bytes * 8 / 16 / nic),
              1e-12);
  EXPECT_EQ(costs.layer.forward.expert, 0);
  c.cluster.nvlink_bytes_per_second = 1e9;
  costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
  EXPECT_NEAR(costs.expert_layer.input_gradient.expert,
              2 * (c.profile.nic_latency + bytes * 7 / 16 / (c.profile.nvlink_efficiency * 1e9)),
              1e-9);

  const RankParameters own = rank_parameters(c.model, c.arrangement, {0});
  EXPECT_EQ(own.of_experts, 3.0 * 10 * 3 * h * f);  // of 160 / 16 experts in three layers
  EXPECT_EQ(own.shared, static_cast<double>(c.model.parameters()) - 3.0 * 160 * 3 * h * f);
  const RankMemory memory = predict_step(c).memory.front();
  EXPECT_DOUBLE_EQ(memory.optimizer, 12 * (own.shared / 32 + own.of_experts / 2));
  EXPECT_DOUBLE_EQ(memory.gradients, 4 * own.all());
  // The rows of a layer's experts are kept before and after them, and twice and once their hidden layer.
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile, true) -
                       layer_activation_bytes(c.model, c.arrangement, c.profile),
                   2 * s * (k * (2 * h + 3 * f) + 2 * e) + 2 * s * 3 * (2 * f - 12288));
}

// Of nodes of 72 GPUs some have 8 of 32 neighbours, and others the rest.
TEST(PlannerExperts, ShareTheirNodesAsTheyLie) {
  PlanCase c = read(a_case(mixtral(8), 288, {{"dp", 288}}, "gb200", "megatron-core-2025"));
  const auto seconds = [&](int ep, int gpus) {
    c.arrangement.ep = ep;
    c.arrangement.gpus = gpus;
    return all_to_all_seconds(1e9, c.arrangement, c.cluster, c.profile);
  };
  ASSERT_EQ(c.cluster.gpus_per_node, 72);
  const double nic = c.profile.nic_efficiency * c.cluster.nic_bytes_per_second,
               nvlink = c.profile.nvlink_efficiency * c.cluster.nvlink_bytes_per_second;
  EXPECT_DOUBLE_EQ(seconds(32, 288), c.profile.nic_latency + 1e9 * 24 / 32 / nic);
  EXPECT_DOUBLE_EQ(seconds(32, 64), c.profile.nvlink_latency + 1e9 * 31 / 32 / nvlink);
  EXPECT_DOUBLE_EQ(seconds(36, 288), c.profile.nvlink_latency + 1e9 * 35 / 36 / nvlink);
  EXPECT_DOUBLE_EQ(seconds(144, 288), c.profile.nic_latency + 1e9 * 72 / 144 / nic);
  EXPECT_EQ(seconds(1, 288), 0);
}

// Each rank of tp makes the latents of its own tokens, and they are gathered instead of the tokens.
TEST(PlannerExperts, HaveLatentsOfTheirOwnTokens) {
  const PlanCase c =
      read(a_case(deepseek(128, 5120, 12288, 1536, 160, 4), 8,
                  {{"tp", 8}, {"sequence_length", 4096}, {"sequence_parallel", true}}, "h100-dgx",
                  "megatron-core-2025"));
  const PassCosts layer = layer_costs(c.model, c.arrangement, c.cluster, c.profile).layer;
  const double s = 4096, t = 8, h = 5120, latents = 1536 + 512 + 64;
  const double of_heads = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * h + 3 * h * 12288,
               scores = 2 * 128 * s * s * (192 + 128) / 2;
  EXPECT_NEAR(layer.forward.at_peak,
              (2 * s * (h * latents + of_heads) + scores) / t / c.cluster.peak_16bit, 1e-12);
  const GroupLinks links = tensor_links(c.arrangement, c.cluster, c.profile);
  const auto half = [&](double columns) {
    return half_all_reduce_seconds(2 * s * columns, t, links);
  };
  EXPECT_NEAR(layer.forward.tensor, half(latents) + 3 * half(h), 1e-12);
  EXPECT_NEAR(layer.input_gradient.tensor, 2 * half(latents) + 4 * half(h), 1e-12);
}

// Each of two ranks of tp sends half of the tokens; with etp 2 both have a half of each expert, for the rows of
// both.
TEST(PlannerExperts, AreSplitOrNot) {
  const auto costs_of = [](int etp) {
    const PlanCase c = read(a_case(mixtral(8), 8,
                                   {{"tp", 2},
                                    {"ep", 4},
                                    {"etp", etp},
                                    {"global_batch", 4},
                                    {"sequence_length", 4096},
                                    {"sequence_parallel", true}},
                                   "h100-dgx", "megatron-core-2025"));
    EXPECT_EQ(rank_parameters(c.model, c.arrangement, {0}).of_experts,
              8.0 * 2 * 3 * 4096 * 14336 / etp);
    EXPECT_EQ(c.arrangement.expert_replicas(), 2 / etp);
    return layer_costs(c.model, c.arrangement, c.cluster, c.profile).expert_layer;
  };
  const PassCosts whole = costs_of(1), halves = costs_of(2);
  EXPECT_NEAR(whole.forward.at_peak, halves.forward.at_peak, 1e-15);
  EXPECT_GT(halves.forward.expert, whole.forward.expert);
  EXPECT_EQ(
      read(a_case(mixtral(8), 8, {{"tp", 2}, {"sequence_length", 64}, {"sequence_parallel", true}},
                  "h100-dgx", "megatron-core-2025"))
          .arrangement.assumptions,
      std::vector<std::string>{"etp is 1"});
}

TEST(PlannerExperts, LieInTheLayersThatTheModelNames) {
  const auto with_experts = [](const ordered_json& config) {
    const Transformer model = transformer_from(config, "model");
    std::vector<std::int64_t> layers;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      if (model.has_experts(layer)) layers.push_back(layer);
    EXPECT_EQ(model.expert_layers(0, model.layers), std::ssize(layers));
    return layers;
  };
  using Layers = std::vector<std::int64_t>;
  ordered_json model = gpt2(32, 1024, 6);
  model.update({{"model_type", "gpt2-moe"},
                {"n_experts", 4},
                {"experts_per_token", 2},
                {"expert_width", 512},
                {"moe_every", 2}});
  EXPECT_EQ(with_experts(model), (Layers{1, 3, 5}));
  model = deepseek(16, 2048, 10944, 1408, 64, 6);
  EXPECT_EQ(with_experts(model), (Layers{1, 2, 3, 4, 5}));
  model["moe_layer_freq"] = 2;
  EXPECT_EQ(with_experts(model), (Layers{2, 4}));
  EXPECT_EQ(with_experts(mixtral(2)), (Layers{0, 1}));
  EXPECT_EQ(with_experts(llama(32, 8, 4096, 14336, 4)), Layers{});
}

// Milliseconds of a layer and micro-batch, from a prototype written apart from this one in Python:
// products, attention's products, softmax, other kernels and tp's exchange of the forward pass, the
// same of the backward pass; both passes, backward with recomputation.
struct LayerRow {
  int heads, width, layers, tp, pp, virtual_stages, micro_batch, batch, gpus;
  double forward_tensor, backward_tensor, forward, backward;
};
TEST(PlannerLayers, EqualAnIndependentImplementation) {
  const LayerRow rows[] = {
      {24, 2304, 24, 1, 1, 1, 16, 512, 32, 0, 0, 35.302, 97.878},
      {48, 6144, 40, 8, 1, 1, 8, 1024, 256, 3.041, 3.041, 15.205, 40.837},
      {96, 12288, 80, 8, 8, 2, 2, 2304, 1536, 1.536, 1.536, 12.203, 34.682},
      {160, 25600, 128, 8, 64, 1, 1, 3072, 3072, 1.598, 1.598, 22.079, 67.259}};
  for (const LayerRow& row : rows) {
    const PlanCase c =
        read(a_case(gpt2(row.heads, row.width, row.layers), row.gpus,
                    megatron_plan(row.tp, row.pp, row.virtual_stages, row.micro_batch, row.batch)));
    const LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
    EXPECT_NEAR(costs.layer.forward.tensor * 1e3, row.forward_tensor, 0.0015);
    EXPECT_NEAR(costs.layer.forward.total() * 1e3, row.forward, 0.005);
    EXPECT_NEAR(costs.layer.backward().total() * 1e3, row.backward, 0.012);
    EXPECT_NEAR(costs.layer.backward().tensor * 1e3, row.forward_tensor + row.backward_tensor,
                0.003);
  }
}

// Fused attention of a causal model: half of 4 b s^2 h / t FLOPs forward, and the profile's multiple of
// them backward. Sequence parallelism: two reduce-scatters and two all-gathers forward, and two more
// all-gathers backward. A ring of cp ranks waits where a hop takes longer than a block of attention.
TEST(PlannerLayers, EqualTheirClosedForms) {
  const auto costs_of = [](const PlanCase& c) {
    return layer_costs(c.model, c.arrangement, c.cluster, c.profile).layer;
  };
  PlanCase c = read(a_case(llama(32, 8, 4096, 14336, 16), 16,
                           {{"tp", 4},
                            {"cp", 2},
                            {"global_batch", 8},
                            {"sequence_length", 8192},
                            {"sequence_parallel", true}},
                           "h100-dgx", "megatron-core-2025"));
  const PassCosts whole = costs_of(c);
  const double s = 8192, h = 4096, t = 4, peak = c.cluster.peak_16bit;
  const double products = 2 * (s / 2) * static_cast<double>(c.model.layer_matrices()) / t;
  EXPECT_NEAR(whole.forward.at_peak, (products + 4 * s * s * h / t / 2 / 2) / peak, 1e-12);
  EXPECT_NEAR(whole.input_gradient.at_peak,
              (products + c.profile.attention_backward_flops * 4 * s * s * h / t / 2 / 2) / peak,
              1e-12);
  EXPECT_NEAR(whole.weight_gradient.at_peak, products / peak, 1e-12);
  const double half = half_all_reduce_seconds(2 * (s / 2) * h, t,
                                              tensor_links(c.arrangement, c.cluster, c.profile));
  EXPECT_NEAR(whole.forward.tensor, 4 * half, 1e-12);
  EXPECT_NEAR(whole.input_gradient.tensor, 6 * half, 1e-12);

  EXPECT_EQ(whole.forward.context, 0);  // hidden
  c.cluster.nvlink_bytes_per_second = 1e9;
  const PassCosts waiting = costs_of(c);
  const auto attention = [&](double flops, double relative) {
    return flops / (peak * c.profile.gemm_efficiency * relative) + 2 * c.profile.launch_seconds;
  };
  const double hop = c.profile.nvlink_latency +
                     2 * 2 * (s / 2) * (8 / t) * 128 / (c.profile.nvlink_efficiency * 1e9);
  EXPECT_NEAR(
      waiting.forward.context,
      hop -
          attention(4 * s * s * h / t / 2 / 2, c.profile.attention_forward_relative_efficiency) / 2,
      1e-12);
  EXPECT_GT(waiting.input_gradient.context, waiting.forward.context);

  c.profile.issue_seconds = 1;  // the host is slower than every kernel
  for (const PassCost& pass : {costs_of(c).forward, costs_of(c).weight_gradient})
    EXPECT_NEAR(pass.alone(), pass.kernels, 1e-9);
}

}  // namespace
}  // namespace lockstep
