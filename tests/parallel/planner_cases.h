// What tests of the planner share: models, plans, and what is predicted of them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/planner/cases.h"
#include "parallel/planner/step_time.h"

namespace lockstep::test {

using nlohmann::ordered_json;

inline const std::string planner_folder = LOCKSTEP_PLANNER;

inline ordered_json gpt2(int heads, int width, int layers) {
  return {{"model_type", "gpt2"}, {"n_layer", layers},   {"n_head", heads},
          {"n_embd", width},      {"n_positions", 2048}, {"vocab_size", 51200}};
}
inline ordered_json llama(int heads, int kv_heads, int width, int ffn, int layers) {
  return {{"model_type", "llama"},        {"num_hidden_layers", layers},
          {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
          {"hidden_size", width},         {"intermediate_size", ffn},
          {"vocab_size", 32000}};
}

// Two experts of eight for each token; DeepSeek's attention and experts, in all layers but the first.
inline ordered_json mixtral(int layers) {
  ordered_json model = llama(32, 8, 4096, 14336, layers);
  model.update({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  return model;
}
inline ordered_json deepseek(int heads, int width, int ffn, int expert_ffn, int experts,
                             int layers) {
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

inline ordered_json a_case(ordered_json model, int gpus, ordered_json plan,
                           const std::string& cluster = "a100-dgx",
                           const std::string& profile = "megatron-2021") {
  return {{"name", "a case"},   {"model", std::move(model)},
          {"cluster", cluster}, {"profile", profile},
          {"gpus", gpus},       {"plan", std::move(plan)}};
}
inline ordered_json megatron_plan(int tp, int pp, int virtual_stages, int micro_batch, int batch) {
  return {{"tp", tp},
          {"pp", pp},
          {"virtual_stages", virtual_stages},
          {"micro_batch_size", micro_batch},
          {"global_batch", batch},
          {"sequence_length", 2048},
          {"recompute", "full"}};
}

inline PlanCase read(const ordered_json& entry) {
  PlannerFiles files(planner_folder);
  return read_case(entry, "a case", files);
}

inline double sum_of_parts(const StepPrediction& prediction) {
  double sum = 0;
  for (const StepPart& part : prediction.parts) sum += part.seconds;
  return sum;
}
inline double part(const StepPrediction& prediction, std::string_view name) {
  for (const StepPart& part : prediction.parts)
    if (part.name == name) return part.seconds;
  ADD_FAILURE() << "no part " << name;
  return 0;
}

inline std::vector<PlanCase> random_plans(std::mt19937& random, int count) {
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

}  // namespace lockstep::test
