// Predicted seconds and bytes: against another implementation of the same model, against closed forms,
// and against what must hold for any cluster.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "parallel/planner/calibration.h"
#include "parallel/planner/cases.h"
#include "parallel/planner/exchange_time.h"
#include "parallel/planner/pass_cost.h"
#include "parallel/planner/pipeline_time.h"
#include "parallel/planner/quick_step.h"
#include "parallel/planner/score.h"
#include "parallel/planner/search.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string folder = LOCKSTEP_PLANNER;

ordered_json gpt2(int heads, int width, int layers) {
  return {{"model_type", "gpt2"}, {"n_layer", layers},   {"n_head", heads},
          {"n_embd", width},      {"n_positions", 2048}, {"vocab_size", 51200}};
}
ordered_json llama(int heads, int kv_heads, int width, int ffn, int layers) {
  return {{"model_type", "llama"},        {"num_hidden_layers", layers},
          {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
          {"hidden_size", width},         {"intermediate_size", ffn},
          {"vocab_size", 32000}};
}

// Two experts of eight for each token; DeepSeek's attention and experts, in all layers but the first.
ordered_json mixtral(int layers) {
  ordered_json model = llama(32, 8, 4096, 14336, layers);
  model.update({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  return model;
}
ordered_json deepseek(int heads, int width, int ffn, int expert_ffn, int experts, int layers) {
  ordered_json model = llama(heads, heads, width, ffn, layers);
  model.update({{"model_type", "deepseek_v2"},
                {"q_lora_rank", 1536},
                {"kv_lora_rank", 512},
                {"qk_nope_head_dim", 128},
                {"qk_rope_head_dim", 64},
                {"v_head_dim", 128},
                {"moe_intermediate_size", expert_ffn},
                {"n_routed_experts", experts},
                {"n_shared_experts", 2},
                {"num_experts_per_tok", 6},
                {"first_k_dense_replace", 1},
                {"vocab_size", 102400}});
  return model;
}

ordered_json a_case(ordered_json model, int gpus, ordered_json plan,
                    const std::string& cluster = "a100-dgx",
                    const std::string& profile = "megatron-2021") {
  return {{"name", "a case"},   {"model", std::move(model)},
          {"cluster", cluster}, {"profile", profile},
          {"gpus", gpus},       {"plan", std::move(plan)}};
}
ordered_json megatron_plan(int tp, int pp, int virtual_stages, int micro_batch, int batch) {
  return {{"tp", tp},
          {"pp", pp},
          {"virtual_stages", virtual_stages},
          {"micro_batch_size", micro_batch},
          {"global_batch", batch},
          {"sequence_length", 2048},
          {"recompute", "full"}};
}

PlanCase read(const ordered_json& entry) {
  PlannerFiles files(folder);
  return read_case(entry, "a case", files);
}

double sum_of_parts(const StepPrediction& prediction) {
  double sum = 0;
  for (const StepPart& part : prediction.parts) sum += part.seconds;
  return sum;
}
double part(const StepPrediction& prediction, std::string_view name) {
  for (const StepPart& part : prediction.parts)
    if (part.name == name) return part.seconds;
  ADD_FAILURE() << "no part " << name;
  return 0;
}

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
    EXPECT_NEAR(pass.total(), pass.kernels, 1e-9);
}

// TFLOP/s of a GPU as the prototype predicts them for table 1 of arXiv:2104.04473.
TEST(PlannerSteps, EqualAnIndependentImplementation) {
  struct {
    int heads, width, layers, tp, pp, gpus, batch, micro_batch, virtual_stages;
    double rate;
  } const rows[] = {{24, 2304, 24, 1, 1, 32, 512, 16, 1, 139.9},
                    {32, 3072, 30, 2, 1, 64, 512, 16, 1, 140.7},
                    {32, 4096, 36, 4, 1, 128, 512, 16, 1, 143.1},
                    {48, 6144, 40, 8, 1, 256, 1024, 8, 1, 138.0},
                    {64, 8192, 48, 8, 2, 512, 1536, 4, 1, 134.4},
                    {80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 146.1},
                    {96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 145.2},
                    {128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 152.6},
                    {128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 160.1},
                    {160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 153.6}};
  for (const auto& row : rows) {
    const StepPrediction p = predict_step(read(
        a_case(gpt2(row.heads, row.width, row.layers), row.gpus,
               megatron_plan(row.tp, row.pp, row.virtual_stages, row.micro_batch, row.batch))));
    EXPECT_NEAR(p.hardware_flops_per_second / 1e12, row.rate, 0.11) << row.width;
    EXPECT_NEAR(p.model_flops_per_second / p.hardware_flops_per_second, 0.75, 0.02);
    EXPECT_NEAR(sum_of_parts(p), p.seconds, 1e-12 * p.seconds);
  }
}

double rate_of(const ordered_json& entry, bool scatter_gather = true) {
  PlanCase c = read(entry);
  c.profile.scatter_gather = scatter_gather;
  return predict_step(c).hardware_flops_per_second / 1e12;
}

// The shapes of figures 12 to 15 and 18 of arXiv:2104.04473; the paper prints no values. Rates in
// TFLOP/s are those of the prototype.
TEST(PlannerSteps, HaveTheShapesOfThePapersFigures) {
  const auto compare = [](const std::vector<double>& rates, const std::vector<double>& expected) {
    ASSERT_EQ(rates.size(), expected.size());
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(rates[i], expected[i], 0.03 * expected[i]) << i;
  };
  // 13: tensor times pipeline parallelism is best at the size of a node.
  for (const int batch : {32, 128}) {
    std::vector<double> rates;
    for (const int pp : {2, 4, 8, 16, 32})
      rates.push_back(
          rate_of(a_case(gpt2(128, 20480, 32), 64, megatron_plan(64 / pp, pp, 1, 1, batch))));
    EXPECT_EQ(std::ranges::max_element(rates) - rates.begin(), 2) << batch;
    if (batch == 128) compare(rates, {115, 144, 164, 160, 141});
  }
  // 14: data parallelism before pipelines; 15: and before tensor parallelism.
  for (const int batch : {32, 128, 512}) {
    std::vector<double> pipelines, tensors;
    for (const int ranks : {2, 4, 8, 16, 32}) {
      pipelines.push_back(
          rate_of(a_case(gpt2(32, 3840, 32), 64, megatron_plan(1, ranks, 1, 1, batch))));
      tensors.push_back(
          rate_of(a_case(gpt2(32, 3840, 32), 64, megatron_plan(ranks, 1, 1, 1, batch))));
    }
    EXPECT_TRUE(std::ranges::is_sorted(pipelines, std::ranges::greater())) << batch;
    if (batch < 512) continue;
    EXPECT_TRUE(std::ranges::is_sorted(tensors, std::ranges::greater())) << batch;
    compare(pipelines, {140, 133, 123, 107, 85});
    compare(tensors, {138, 118, 93, 53, 31});
  }
  // 12: interleaving helps, most with few micro-batches; 18: so does scatter-gather, always.
  double last_gain = std::numeric_limits<double>::infinity();
  for (const int batch : {12, 24, 36, 48, 60}) {
    const ordered_json interleaved =
        a_case(gpt2(96, 12288, 96), 96, megatron_plan(8, 12, 4, 1, batch));
    const double rate = rate_of(interleaved);
    const double gain =
        rate / rate_of(a_case(gpt2(96, 12288, 96), 96, megatron_plan(8, 12, 1, 1, batch)));
    EXPECT_GT(gain, 1);
    EXPECT_LT(gain, last_gain);
    last_gain = gain;
    EXPECT_NEAR(rate / rate_of(interleaved, false), 1.064, 0.01) << batch;
  }
}

// Memory of ten published runs: each fits with full recomputation, none without.
TEST(PlannerMemory, FitsWhatWasRunAndNothingElse) {
  const ordered_json table =
      ordered_json::parse(std::ifstream(folder + "/tables/megatron_sc21.json"));
  int rows = 0;
  for (const ordered_json& row : table.at("rows")) {
    if (!row.value("pairs", false)) continue;
    ++rows;
    ordered_json changed = a_case(row["model"], row["gpus"], row["plan"]);
    EXPECT_NE(predict_step(read(changed)).verdict, "does not fit") << row["name"];
    changed["plan"]["recompute"] = "none";
    EXPECT_EQ(predict_step(read(changed)).verdict, "does not fit") << row["name"];
  }
  EXPECT_EQ(rows, 10);
}

// ZeRO-3 of 529.6B parameters ran with 640 GPUs, and ran out of memory with 560: no model can be
// sure of either.
TEST(PlannerMemory, IsTightWhereARunDidNotFit) {
  for (const int gpus : {560, 640}) {
    const StepPrediction p = predict_step(read(a_case(gpt2(128, 20480, 105), gpus,
                                                      {{"zero", 3},
                                                       {"micro_batch_size", 4},
                                                       {"global_batch", 4 * gpus},
                                                       {"sequence_length", 2048},
                                                       {"recompute", "full"}},
                                                      "a100-dgx", "deepspeed-zero3-2021")));
    EXPECT_EQ(p.verdict, "tight") << gpus << " " << p.memory.front().total();
  }
}

// Activation bytes of one layer, arXiv:2205.05198: s b h (10 + 24 / t + 5 a s / h t).
TEST(PlannerMemory, OfALayerEqualsItsClosedForm) {
  ordered_json plan = megatron_plan(4, 1, 1, 2, 8);
  plan["recompute"] = "none";
  const double s = 2048, b = 2, h = 4096, a = 32, t = 4;
  PlanCase c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile),
                   s * b * h * (10 + 24 / t + 5 * a * s / (h * t)));
  plan["sequence_parallel"] = true;
  c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile),
                   s * b * h / t * (34 + 5 * a * s / h));
  plan["recompute"] = "selective";
  c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile), 34 * s * b * h / t);
}

// Without messages and with equal stages a replay is the schedule's closed form.
TEST(PlannerPipelines, EqualTheSchedulesClosedForms) {
  int compared = 0;
  for (const ScheduleEntry& entry : schedules())
    for (const int p : {2, 3, 4, 8})
      for (const int m : {1, 4, 8, 24})
        for (const int v : {1, 2, 3}) {
          const PipelineShape shape{p, m, v};
          const PassTimes times{.forward = v, .input_gradient = v, .weight_gradient = v};
          std::optional<Rational> expected;
          try {
            if (complete(entry, shape).virtual_stages != v) continue;
            expected = entry.makespan ? entry.makespan(shape, times) : std::nullopt;
          } catch (const Error&) {
            continue;  // not a shape of this schedule
          }
          if (!expected) continue;
          const Schedule schedule = make_schedule(entry, shape);
          const std::vector<StagePasses> stages(static_cast<std::size_t>(schedule.stages),
                                                {1, 1, 1});
          const PipelineTimes replayed = pipeline_times(schedule, stages, 0, false);
          EXPECT_NEAR(replayed.makespan, value_of(*expected), 1e-9) << entry.name << p << m << v;
          EXPECT_NEAR(replayed.busy + replayed.bubble, replayed.makespan, 1e-9);
          EXPECT_EQ(replayed.imbalance, 0);
          EXPECT_EQ(replayed.messages, 0);
          ++compared;
        }
  EXPECT_GT(compared, 100);
}

// 1F1B of two ranks and two micro-batches by hand: F 1 s, B 2 s, messages 0.5 s.
TEST(PlannerPipelines, TakeMessagesIntoAccount) {
  const Schedule schedule = make_schedule(find_schedule("1f1b"), {2, 2, 1});
  const std::vector<StagePasses> stages(2, {1, 1, 1});
  // Rank 1: F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5; rank 0 gets its gradient at 8 and is done at 10.
  EXPECT_DOUBLE_EQ(pipeline_times(schedule, stages, 0.5, false).makespan, 10);
  // Rank 0 sends until 1.5; rank 1: F0 -2.5, B0 -4.5 and sends -5, F1 -6, B1 -8, sends -8.5.
  EXPECT_DOUBLE_EQ(pipeline_times(schedule, stages, 0.5, true).makespan, 10.5);
}

std::vector<PlanCase> random_plans(std::mt19937& random, int count) {
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  std::vector<PlanCase> plans;
  constexpr const char* schedules[] = {"1f1b",  "1f1b", "gpipe",     "zb-h1",
                                       "zb-h2", "zb-v", "dualpipe-v"};
  while (static_cast<int>(plans.size()) < count) {
    const int tp = pick({1, 2, 4, 8}), pp = pick({1, 2, 4}), dp = pick({1, 2, 8}), v = pick({1, 2}),
              micro = pick({1, 2}), batches = pick({4, 8});
    const bool modern = random() % 2 == 0;
    const int cp = modern ? pick({1, 2, 4}) : 1;
    ordered_json plan = {
        {"tp", tp},
        {"pp", pp},
        {"cp", cp},
        {"dp", dp},
        {"micro_batch_size", micro},
        {"global_batch", dp * micro * batches},
        {"virtual_stages", v},
        {"sequence_length", pick({1024, 4096})},
        {"zero", pp > 1 ? pick({0, 1}) : pick({0, 1, 2, 3})},
        {"sequence_parallel", random() % 2 == 0},
        {"recompute", random() % 2 == 0 ? "full" : "none"},
        {"tp_overlap", modern && random() % 2 == 0},
        {"order", pick({0, 1}) == 0 ? "tp-cp-dp-pp" : "tp-cp-pp-dp"},
        {"schedule", v == 1 ? schedules[random() % std::size(schedules)] : "1f1b"}};
    ordered_json model =
        random() % 2 == 0 ? gpt2(32, pick({1024, 4096}), 16) : llama(32, 8, 4096, 14336, 16);
    if (modern && random() % 2 == 0) {
      model = random() % 2 == 0 ? mixtral(16) : deepseek(32, 2048, 10944, 1408, 64, 16);
      plan["order"] = "tp-cp-dp-pp";
      plan["ep"] = pick({1, 2, 8});
      plan["etp"] = pick({1, 1, 2});
    }
    try {
      plans.push_back(read(a_case(model, tp * pp * cp * dp, plan, modern ? "h100-dgx" : "a100-dgx",
                                  modern ? "megatron-core-2025" : "megatron-2021")));
    } catch (const Error&) {
      continue;  // no such plan
    }
  }
  return plans;
}

constexpr double ClusterSheet::*rates[] = {
    &ClusterSheet::peak_16bit, &ClusterSheet::peak_fp8, &ClusterSheet::memory_bytes_per_second,
    &ClusterSheet::nvlink_bytes_per_second, &ClusterSheet::nic_bytes_per_second};
constexpr double SoftwareProfile::*latencies[] = {
    &SoftwareProfile::launch_seconds,    &SoftwareProfile::issue_seconds,
    &SoftwareProfile::nvlink_latency,    &SoftwareProfile::nic_latency,
    &SoftwareProfile::zero3_hop_seconds, &SoftwareProfile::step_overhead};

// Faster hardware never makes a plan slower; and with all rates doubled and all latencies halved a
// step takes half as long, so that no time is hidden in the code.
TEST(PlannerSteps, FollowTheHardware) {
  std::mt19937 random(7);
  int perturbations = 0;
  for (const PlanCase& plan : random_plans(random, LOCKSTEP_THOROUGH ? 460 : 60)) {
    const double before = predict_step(plan).seconds;
    PlanCase all = plan;
    for (const auto rate : rates) {
      PlanCase one = plan;
      one.cluster.*rate *= 2;
      all.cluster.*rate *= 2;
      EXPECT_LE(predict_step(one).seconds, before * (1 + 1e-9));
      ++perturbations;
    }
    for (const auto latency : latencies) {
      PlanCase one = plan;
      one.profile.*latency /= 2;
      all.profile.*latency /= 2;
      EXPECT_LE(predict_step(one).seconds, before * (1 + 1e-9));
      ++perturbations;
    }
    EXPECT_NEAR(predict_step(all).seconds, before / 2, before * 1e-8);
  }
  EXPECT_GT(perturbations, LOCKSTEP_THOROUGH ? 5000 : 600);
}

TEST(PlannerSteps, KeepTheirInvariants) {
  std::mt19937 random(8);
  for (const PlanCase& plan : random_plans(random, 200)) {
    const StepPrediction p = predict_step(plan);
    const Arrangement& a = plan.arrangement;
    EXPECT_NEAR(sum_of_parts(p), p.seconds, 1e-9 * p.seconds);
    for (const StepPart& part : p.parts) EXPECT_GE(part.seconds, -1e-9 * p.seconds) << part.name;
    if (a.pp == 1) {
      EXPECT_NEAR(part(p, "bubble") + part(p, "pp"), 0, 1e-9 * p.seconds);
    }
    if (a.tp == 1) {
      EXPECT_EQ(part(p, "tp"), 0);
    }
    const bool is_v = a.schedule == "zb-v" || a.schedule == "dualpipe-v";
    if (a.zero_stage < 3) {
      EXPECT_EQ(part(p, "tied_embedding") > 0, plan.model.tied_head && a.pp > 1 && !is_v);
    }
    if (a.replicas() == 1 && a.expert_replicas() == 1) {
      EXPECT_NEAR(part(p, "dp"), 0, 1e-12);
    }
    EXPECT_EQ(part(p, "ep") > 0, a.ep * a.etp > 1);
    EXPECT_EQ(p.memory.size(), static_cast<std::size_t>(a.pp));
    // Memory never rises with zero's stage, apart from gathered parameters, nor with recomputation.
    PlanCase other = plan;
    double last = std::numeric_limits<double>::infinity();
    for (int stage = 0; stage <= (a.pp == 1 ? 3 : 1); ++stage) {
      other.arrangement.zero_stage = stage;
      const RankMemory memory = predict_step(other).memory.front();
      EXPECT_LE(memory.total() - memory.communication, last);
      last = memory.total() - memory.communication;
    }
  }
}

// The closed form is exact where stages are equal and messages take no time; where weights' gradients fill
// the bubble, it must be far nearer to the replay than that of 1F1B.
TEST(PlannerSearches, RankPlansAsReplaysDo) {
  std::mt19937 random(9);
  std::map<std::string, int> compared;
  for (PlanCase c : random_plans(random, 300)) {
    const ScheduleEntry& schedule = find_schedule(c.arrangement.schedule);
    if (!schedule.in_flight(c.arrangement.shape(), 0)) continue;
    ++compared[c.arrangement.schedule];
    c.model.vocabulary = 1;  // the ends of the model take next to no time, messages none
    c.cluster.nic_bytes_per_second *= 1e9;
    c.cluster.nvlink_bytes_per_second *= 1e9;
    c.profile.nic_latency = c.profile.nvlink_latency = 0;
    const StepPrediction replayed = predict_step(c);
    LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
    const QuickStep quick = quick_step({c.model, c.arrangement, c.cluster, c.profile, costs});
    const double error = std::abs(quick.seconds - replayed.seconds);
    EXPECT_LE(error, 0.02 * replayed.seconds) << text_of(c.arrangement);
    if (schedule.splits_backward && c.arrangement.pp > 1) {
      Arrangement fused = c.arrangement;
      fused.schedule = fused.virtual_stages > 1 ? "interleaved" : "1f1b";
      const double of_1f1b =
          quick_step({c.model, fused, c.cluster, c.profile, costs}).seconds - replayed.seconds;
      EXPECT_LE(error, 0.5 * std::abs(of_1f1b)) << text_of(c.arrangement);
    }
    // Where the first layers have no experts, a rank's stages hold unequally much.
    const bool is_uneven = c.model.experts.first_layer > 0 && c.arrangement.virtual_stages > 1;
    EXPECT_NEAR(quick.largest_memory, replayed.largest_memory(),
                (is_uneven ? 0.02 : 1e-9) * quick.largest_memory)
        << text_of(c.arrangement);
  }
  for (const char* name : {"1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"})
    EXPECT_GT(compared[name], 3) << name;
}

// Of six layers on a V of two ranks, the first has the two ends and two layers, the second four.
TEST(PlannerSearches, KnowTheEndsOfAV) {
  for (const char* schedule : {"zb-v", "dualpipe-v"}) {
    const PlanCase c =
        read(a_case(llama(32, 8, 4096, 14336, 6), 8,
                    {{"tp", 4}, {"pp", 2}, {"schedule", schedule}, {"global_batch", 32}},
                    "h100-dgx", "megatron-core-2025"));
    const StepPrediction replayed = predict_step(c);
    const QuickStep quick = quick_step({c.model, c.arrangement, c.cluster, c.profile,
                                        layer_costs(c.model, c.arrangement, c.cluster, c.profile)});
    EXPECT_NEAR(quick.seconds, replayed.seconds, 0.05 * replayed.seconds) << schedule;
    EXPECT_NEAR(quick.largest_memory, replayed.largest_memory(), 1e-9 * quick.largest_memory)
        << schedule;
  }
}

TEST(PlannerExchanges, StaysInANodeOnlyIfNoPipelineCrossesOne) {
  const ClusterSheet cluster{.gpus_per_node = 8};
  const auto in_nodes = [&](int gpus, int tp, int pp, bool stages_first) {
    return has_stages_in_nodes({.gpus = gpus, .tp = tp, .pp = pp, .stages_first = stages_first},
                               cluster);
  };
  EXPECT_TRUE(in_nodes(8, 2, 4, false));
  EXPECT_FALSE(in_nodes(16, 2, 4, false));
  EXPECT_TRUE(in_nodes(16, 2, 4, true));
  EXPECT_FALSE(in_nodes(24, 2, 3, true));  // GPUs 6 to 11 are one pipeline
  EXPECT_FALSE(in_nodes(32, 4, 4, true));
}

TEST(PlannerCalibration, FindsTheConstantThatMadeTheSteps) {
  PlanCase c = read(a_case(gpt2(32, 4096, 16), 64, megatron_plan(4, 2, 1, 2, 64)));
  SoftwareProfile made = c.profile;
  made.gemm_efficiency = 0.512;
  const double seconds = predict_step(c.model, c.arrangement, c.cluster, made).seconds;
  const SoftwareProfile fitted =
      calibrated(c.profile, {{&c.model, &c.arrangement, &c.cluster, seconds}});
  EXPECT_NEAR(fitted.gemm_efficiency, 0.512, 1e-4);
  EXPECT_EQ(fitted.nvlink_efficiency, c.profile.nvlink_efficiency);
  EXPECT_LT(relative_error(fitted, {{&c.model, &c.arrangement, &c.cluster, seconds}}), 1e-4);
}

TEST(PlannerCases, StateWhatTheyAssume) {
  ordered_json entry = a_case(gpt2(32, 4096, 38), 64, megatron_plan(4, 4, 1, 1, 64));
  Arrangement a = read(entry).arrangement;
  EXPECT_EQ(a.layers_per_stage, (std::vector<int>{9, 10, 10, 9}));
  EXPECT_EQ(a.assumptions, std::vector<std::string>{"layers_per_stage is 9,10,10,9"});
  entry["plan"]["ends_count_as_layers"] = true;  // 40 places
  a = read(entry).arrangement;
  EXPECT_EQ(a.layers_per_stage, (std::vector<int>{9, 10, 10, 9}));
  EXPECT_THAT(a.assumptions, IsEmpty());
  entry["plan"]["layers_per_stage"] = {8, 10, 10, 10};
  EXPECT_EQ(read(entry).arrangement.layers_per_stage, (std::vector<int>{8, 10, 10, 10}));
}

std::string refusal_of(const ordered_json& entry) {
  try {
    read(entry);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return refusal(error);
  }
  ADD_FAILURE() << entry.dump() << " was accepted";
  return "";
}

TEST(PlannerCases, AreRefusedByName) {
  const ordered_json good = a_case(gpt2(32, 4096, 36), 64, megatron_plan(4, 2, 1, 1, 64));
  EXPECT_GT(predict_step(read(good)).seconds, 0);
  const auto with = [&](const char* pointer, ordered_json value) {
    ordered_json entry = good;
    entry[ordered_json::json_pointer(pointer)] = std::move(value);
    return refusal_of(entry);
  };
  EXPECT_THAT(with("/cluster", "a200"), HasSubstr("choose one of a100-dgx"));
  EXPECT_THAT(with("/profile", "/none.json"), HasSubstr("cannot read /none.json"));
  EXPECT_THAT(with("/model/n_embd", 0), HasSubstr("\"n_embd\" is 0"));
  EXPECT_THAT(with("/model/n_layer", nullptr), HasSubstr("no \"n_layer\""));
  EXPECT_THAT(with("/model/model_type", "bert"), HasSubstr("knows gpt2, gpt2-gqa"));
  EXPECT_THAT(with("/model/num_local_experts", 8), HasSubstr("no \"num_experts_per_tok\""));
  EXPECT_THAT(with("/gpus", 60), HasSubstr("tp x cp x pp = 8 does not divide 60"));
  EXPECT_THAT(with("/gpus", 0), HasSubstr("no number of \"gpus\""));
  EXPECT_THAT(with("/nic_bytes_per_second", -1), HasSubstr("positive"));
  EXPECT_THAT(with("/plan/dp", 3), HasSubstr("is not 64 GPUs"));
  EXPECT_THAT(with("/model/n_head", 2), HasSubstr("2 heads are not divisible by 4"));
  EXPECT_THAT(with("/plan/global_batch", 63), HasSubstr("multiple of micro_batch_size x dp"));
  EXPECT_THAT(with("/plan/cp", 2), HasSubstr("which megatron-2021 has not"));
  EXPECT_THAT(with("/plan/ep", 2), HasSubstr("no experts"));
  EXPECT_THAT(with("/plan/gemm_dtype", "fp8"), HasSubstr("use gemm_dtype bf16"));
  EXPECT_THAT(with("/plan/zero", 3), HasSubstr("without a pipeline"));
  EXPECT_THAT(with("/plan/schedule", "2f2b"), HasSubstr("use 1f1b or"));
  EXPECT_THAT(with("/plan/virtual_stages", 1 << 20), HasSubstr("from 1 to 1000"));
  EXPECT_THAT(with("/plan/global_batch", std::int64_t{1} << 32),
              HasSubstr("use larger micro-batches"));
  EXPECT_THAT(with("/plan/virtual_stages", 20), HasSubstr("40 stages of 36 layers"));
  EXPECT_THAT(with("/plan/layers_per_stage", ordered_json::array({20, 20})),
              HasSubstr("are not the 36 layers of 2 stages"));
  EXPECT_THAT(with("/plan/zero1", 1), HasSubstr("unknown \"zero1\""));
  const ordered_json experts = a_case(
      mixtral(32), 64, {{"tp", 2}, {"ep", 8}, {"sequence_length", 64}, {"sequence_parallel", true}},
      "h100-dgx", "megatron-core-2025");
  EXPECT_GT(predict_step(read(experts)).seconds, 0);
  const auto with_experts = [&](const char* pointer, ordered_json value) {
    ordered_json entry = experts;
    entry[ordered_json::json_pointer(pointer)] = std::move(value);
    return refusal_of(entry);
  };
  EXPECT_THAT(with_experts("/plan/ep", 3), HasSubstr("8 experts are not divisible by 3"));
  EXPECT_THAT(with_experts("/plan/etp", 3), HasSubstr("14336 columns of an expert"));
  EXPECT_THAT(with_experts("/gpus", 4),
              HasSubstr("ep 8 x etp 1 does not divide tp 2 x cp 1 x dp 2"));
  EXPECT_THAT(with_experts("/plan/sequence_parallel", false),
              HasSubstr("use sequence_parallel true"));
  EXPECT_THAT(with_experts("/profile", "megatron-2021"),
              HasSubstr("experts, which megatron-2021 has not"));
  EXPECT_THAT(with_experts("/model/num_experts_per_tok", 9),
              HasSubstr("9 experts for each token of 8"));
  EXPECT_THAT(with("/calibrates", true), HasSubstr("without measured_seconds"));
}

TEST(PlannerData, IsRefusedByName) {
  const std::string path = testing::TempDir() + "/profile.json";
  const ordered_json good =
      ordered_json::parse(std::ifstream(folder + "/profiles/megatron-2021.json"));
  const auto with = [&](const char* pointer, ordered_json value) {
    ordered_json file = good;
    file[ordered_json::json_pointer(pointer)] = std::move(value);
    std::ofstream(path) << file.dump();
    try {
      software_profile(folder, path);
    } catch (const Error& error) {
      return refusal(error);
    }
    return std::string("accepted");
  };
  EXPECT_EQ(with("/name", "mine"), "accepted");
  EXPECT_THAT(with("/schema", "lockstep.cluster/1"), HasSubstr("another \"schema\""));
  EXPECT_THAT(with("/constants/nic_latency/value", -1), HasSubstr("\"nic_latency\" is -1"));
  EXPECT_THAT(with("/constants/nic_latency/unit", "us"), HasSubstr("give it in s"));
  EXPECT_THAT(with("/constants/nic_latency/source", ""), HasSubstr("no \"source\""));
  EXPECT_THAT(with("/constants/nic_efficiency/value", 1.5), HasSubstr("from 0 to 1"));
  for (const double count : {0.5, 1e300})
    EXPECT_THAT(with("/constants/optimizer_launches/value", count), HasSubstr("a whole number"));
  EXPECT_THAT(with("/constants/speed", good["constants"]["nic_latency"]),
              HasSubstr("nothing reads \"speed\""));
  EXPECT_THAT(with("/rules/dropout", 1), HasSubstr("no rule \"dropout\""));
  EXPECT_THAT(with("/fitted/0/most", 7), HasSubstr("at most 1 for a fraction"));
  EXPECT_THAT(with("/fitted/0/rows", 1e300), HasSubstr("use 1 to 1000"));
  EXPECT_THAT(with("/fitted/0/name", "speed"), HasSubstr("there is no such constant"));
}

// On a slow network all that the last passes do not hide is exposed. With two stages on each of four
// ranks, gradients of one stage are complete when four micro-batches have yet to pass the other: 2.5 passes
// through a rank's layers.
TEST(PlannerReplicas, ExposeWhatTheLastPassesDoNotHide) {
  PlanCase c = read(a_case(llama(32, 8, 4096, 14336, 16), 32,
                           {{"pp", 4},
                            {"virtual_stages", 2},
                            {"dp", 8},
                            {"zero", 1},
                            {"global_batch", 64},
                            {"sequence_length", 1024}},
                           "h100-dgx", "megatron-core-2025"));
  c.cluster.nic_bytes_per_second = 1e9;
  c.cluster.nvlink_bytes_per_second = 1e9;
  const LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
  const GroupLinks links = replica_links(c.arrangement, c.cluster, c.profile);
  const double layers = 4, parameters = 1e9;
  const double bytes = c.profile.gradient_wire_bytes * parameters;
  ASSERT_EQ(c.profile.parameter_wire_bytes, c.profile.gradient_wire_bytes);
  const double hidden = c.profile.overlap_window * 2.5 * layers *
                        (costs.layer.forward.total() + costs.layer.backward().total());
  EXPECT_NEAR(exposed_exchange({c.model, c.arrangement, c.cluster, c.profile, costs}, {.dense = 4},
                               {.shared = parameters}),
              2 * half_all_reduce_seconds(bytes, 8, links) - hidden, 1e-9);
  EXPECT_GT(hidden, 0);
}

TEST(PlannerSearches, AdviseOnShapesThatAreSlow) {
  const PlanCase c =
      read(a_case(llama(32, 8, 1024, 2752, 16), 1, ordered_json::object()));  // heads of 32
  EXPECT_EQ(advice(c.model, c.arrangement).front(),
            "the head size is 32, not a multiple of 64: take 64");
  const PlanCase wide =
      read(a_case(gpt2(32, 3200, 16), 1, ordered_json::object()));  // heads of 100
  EXPECT_EQ(advice(wide.model, wide.arrangement).front(),
            "the head size is 100, not a multiple of 64: take 64 or 128");
}

TEST(PlannerSearches, DoubleEveryRateOfAResource) {
  const ClusterSheet cluster = cluster_sheet(folder, "h100-dgx");
  for (const Resource& resource : resources())
    for (const auto rate : resource.rates)
      EXPECT_EQ(with_double(resource, cluster).*rate, 2 * cluster.*rate) << resource.name;
}

TEST(PlannerScores, CountWhatTheyHoldOut) {
  const Errors errors = errors_of({0.1, -0.3, 0.2});
  EXPECT_EQ(errors.count, 3);
  EXPECT_NEAR(errors.mean, 0.2, 1e-15);
  EXPECT_EQ(errors.median, 0.2);
  EXPECT_EQ(errors.worst, 0.3);
  const std::string path = testing::TempDir() + "/table.json";
  ordered_json table = {{"schema", "lockstep.table/1"},
                        {"name", "t"},
                        {"source", "s"},
                        {"noise", 0.01},
                        {"goals", {{"mean", 0.5}}},
                        {"rows", ordered_json::array()}};
  const auto score = [&] {
    std::ofstream(path) << table.dump();
    return score_table(path, folder);
  };
  EXPECT_THROW(score(), Error);  // nothing is held out
  ordered_json row = a_case(gpt2(32, 4096, 36), 64, megatron_plan(4, 2, 1, 1, 64));
  const double seconds = predict_step(read(row)).seconds;
  row["measured_seconds"] = seconds * 1.25;
  table["rows"].push_back(row);
  EXPECT_NEAR(score().held_out.mean, 0.25, 1e-12);
  EXPECT_THAT(score().missed, IsEmpty());
  table["goals"]["mean"] = 0.2;
  EXPECT_EQ(score().missed.size(), 1u);
}

}  // namespace
}  // namespace lockstep
