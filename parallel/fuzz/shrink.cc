// Makes a failing case smaller.
#include <algorithm>

#include "collectives/base/error.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {
namespace {

bool is_valid(const FuzzCase& fuzz_case) {
  try {
    check(fuzz_case.model);
    for (std::size_t i = 0; i < fuzz_case.plans.size(); ++i)
      if (fuzz_case.plans[i].options.steps <= fuzz_case.first_step(i)) return false;
    for (const FuzzPlan& plan : fuzz_case.plans) {
      plan_of(plan, fuzz_case.model);
      if (plan.options.gather != "whole" && plan.options.dtype != DType::f64)
        return false;  // see draw_gather()
    }
    return is_stable(fuzz_case);
  } catch (const Error&) {
    return false;
  }
}

// Sets the ranks of a plan whose axes all have lengths to their product.
void set_ranks(FuzzPlan& plan) {
  const TrainOptions& o = plan.options;
  if (technique(o.technique).has_mesh) plan.ranks = o.mesh_ranks(axes());
}

// Returns simpler values of an option that a random plan chooses, the simplest first: the default,
// and values that precede the current one in the description. Empty for the default.
std::vector<std::string> simpler_values(const Option& option, const std::string& by_default) {
  const std::string own = text_of(option);
  if (own == by_default) return {};
  std::vector<std::string> values;
  if (by_default != "null") values.push_back(by_default);  // not given
  for (const std::string& value : option.drawn) {
    if (value == own) break;
    if (!value.empty() && value != by_default) values.push_back(value);
  }
  return values;
}

// Adds the cases in which one option of the plan is simpler.
void simplify_options(const FuzzCase& from, std::vector<FuzzCase>& simpler) {
  TrainOptions with_defaults;
  with_defaults.technique = from.last().options.technique;
  FuzzCase read = from;  // descriptions are bound to options that can change
  const std::vector<OptionGroup> groups = describe(read.last().options);
  const std::vector<OptionGroup> defaults = describe(with_defaults);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].belongs_to(with_defaults.technique)) continue;
    for (std::size_t o = 0; o < groups[g].options.size(); ++o) {
      const Option& option = groups[g].options[o];
      if (option.drawn.empty()) continue;
      for (const std::string& value : simpler_values(option, text_of(defaults[g].options[o]))) {
        FuzzCase next = from;
        const std::vector<OptionGroup> its = describe(next.last().options);
        set_from_text(its[g].options[o], value);
        if (text_of(its[g].options[o]) == text_of(option)) break;  // "0" is no simpler than "0.0"
        set_ranks(next.last());
        simpler.push_back(next);
      }
    }
  }
}

template <typename T>
void simplify(const FuzzCase& from, T GptConfig::*field, std::initializer_list<T> values,
              std::vector<FuzzCase>& simpler) {
  for (const T value : values) {
    if (value >= from.model.*field) continue;
    simpler.push_back(from);
    simpler.back().model.*field = value;
  }
}

}  // namespace

std::vector<FuzzCase> simpler_cases(const FuzzCase& from) {
  std::vector<FuzzCase> simpler;
  const auto changed = [&](auto change) {
    FuzzCase next = from;
    change(next);
    simpler.push_back(next);
  };
  for (std::size_t i = 0; i + 1 < from.plans.size(); ++i)
    changed([&](FuzzCase& next) {
      next.plans.erase(next.plans.begin() + static_cast<std::ptrdiff_t>(i));
    });
  for (int steps = from.first_step(from.plans.size() - 1) + 1; steps < from.last().options.steps;
       ++steps)
    changed([&](FuzzCase& next) { next.last().options.steps = steps; });
  if (!from.last().schedule.empty())
    changed([](FuzzCase& next) {
      next.last().schedule.clear();
      next.last().options.schedule_file.clear();
    });
  if (!technique(from.last().options.technique).has_mesh && from.last().ranks > 1)
    for (const int ranks : {2, from.last().ranks / 2, from.last().ranks - 1})
      if (ranks < from.last().ranks) changed([&](FuzzCase& next) { next.last().ranks = ranks; });
  simplify_options(from, simpler);
  simplify(from, &GptConfig::layers, {1, 2, 4}, simpler);
  for (const int heads : {1, 2, 4})
    if (heads < from.model.heads)
      changed([&](FuzzCase& next) {
        next.model.width = heads * static_cast<int>(from.model.head_size());
        next.model.heads = heads;
        next.model.kv_heads = 0;
      });
  simplify(from, &GptConfig::kv_heads, {0}, simpler);
  if (from.model.experts.exist())
    changed([](FuzzCase& next) {
      next.model.experts = {};
      for (FuzzPlan& plan : next.plans) static_cast<ExpertOptions&>(plan.options) = {};
    });
  if (from.last().options.lora_rank > 0)
    changed([](FuzzCase& next) {
      for (FuzzPlan& plan : next.plans) static_cast<LoraOptions&>(plan.options) = {};
    });
  if (!from.last().options.lora_init.empty())
    changed([](FuzzCase& next) { next.last().options.lora_init.clear(); });
  if (from.last().options.expert_ranks.value_or(1) > 1)
    changed([](FuzzCase& next) { next.last().options.expert_ranks = 1; });
  if (from.last().options.expert_tensor_ranks)
    changed([](FuzzCase& next) { next.last().options.expert_tensor_ranks.reset(); });
  simplify(from, &GptConfig::vocabulary, {123, 128}, simpler);
  if (from.last().options.sequence_length != 0)
    changed([](FuzzCase& next) { next.last().options.sequence_length = 0; });
  const auto shares =
      from.last().options.mesh_ranks(sequence_axes()) * from.last().options.micro_batches;
  for (const int batch : {shares, from.last().ranks * from.last().options.micro_batches,
                          from.last().options.global_batch - 1})
    if (batch < from.last().options.global_batch)
      changed([&](FuzzCase& next) { next.last().options.global_batch = batch; });
  for (FuzzCase& each : simpler) {
    for (FuzzPlan& plan : each.plans)
      if (&plan != &each.last()) take_training(plan.options, each.last().options);
    chain(each);
  }
  return simpler;
}

FuzzCase shrink(FuzzCase failing, const std::function<bool(const FuzzCase&)>& fails) {
  for (bool has_shrunk = true; has_shrunk;) {
    has_shrunk = false;
    for (const FuzzCase& simpler : simpler_cases(failing)) {
      if (!is_valid(simpler) || !fails(simpler)) continue;
      failing = simpler;
      has_shrunk = true;
      break;
    }
  }
  return failing;
}

}  // namespace lockstep
