// Makes a failing case smaller.
#include <algorithm>

#include "collectives/base/error.h"
#include "parallel/fuzz/fuzz_case.h"
#include "parallel/make_plan.h"

namespace lockstep {
namespace {

bool is_valid(const FuzzCase& fuzz_case) {
  try {
    check(fuzz_case.model);
    if (!is_stable(fuzz_case)) return false;
    for (const FuzzPlan* plan : {&fuzz_case.plan, fuzz_case.before ? &*fuzz_case.before : nullptr})
      if (plan) plan_of(plan->options, plan->ranks, fuzz_case.model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Of 3d as many as its axes make.
void set_ranks(FuzzPlan& plan) {
  const TrainOptions& o = plan.options;
  if (o.technique == "3d")
    plan.ranks = o.tensor_ranks.value_or(1) * o.context_ranks.value_or(1) *
                 o.pipeline_ranks.value_or(1) * o.data_ranks.value_or(1);
}

// Simpler values of an option that a random plan chooses, the simplest first: its default, and those
// that come before its own in its description. None of the default.
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

// The cases in which one option of the plan is simpler.
void simplify_options(const FuzzCase& from, std::vector<FuzzCase>& simpler) {
  TrainOptions with_defaults;
  with_defaults.technique = from.plan.options.technique;
  FuzzCase read = from;  // descriptions are bound to options that can change
  const std::vector<OptionGroup> groups = describe(read.plan.options);
  const std::vector<OptionGroup> defaults = describe(with_defaults);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].belongs_to(with_defaults.technique)) continue;
    for (std::size_t o = 0; o < groups[g].options.size(); ++o) {
      const Option& option = groups[g].options[o];
      if (option.drawn.empty()) continue;
      for (const std::string& value : simpler_values(option, text_of(defaults[g].options[o]))) {
        FuzzCase next = from;
        const std::vector<OptionGroup> its = describe(next.plan.options);
        set_from_text(its[g].options[o], value);
        if (text_of(its[g].options[o]) == text_of(option)) break;  // "0" is no simpler than "0.0"
        set_ranks(next.plan);
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
  if (from.before) changed([](FuzzCase& next) { next.before.reset(); });
  if (from.plan.options.technique != "3d" && from.plan.ranks > 1)
    for (const int ranks : {2, from.plan.ranks / 2, from.plan.ranks - 1})
      if (ranks < from.plan.ranks) changed([&](FuzzCase& next) { next.plan.ranks = ranks; });
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
  simplify(from, &GptConfig::vocabulary, {123, 128}, simpler);
  if (from.plan.options.sequence_length != 0)
    changed([](FuzzCase& next) { next.plan.options.sequence_length = 0; });
  const auto shares = from.plan.options.data_ranks.value_or(1) * from.plan.options.micro_batches;
  for (const int batch : {shares, from.plan.ranks * from.plan.options.micro_batches,
                          from.plan.options.global_batch - 1})
    if (batch < from.plan.options.global_batch)
      changed([&](FuzzCase& next) { next.plan.options.global_batch = batch; });
  for (FuzzCase& each : simpler)
    if (each.before) take_training(each.before->options, each.plan.options);
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
