#include "parallel/fuzz/coverage.h"

#include <algorithm>

namespace lockstep {
namespace {

// Returns the texts that a description lists, as its option writes them: "0" of a fraction is
// "0.0".
std::map<std::string, std::set<std::string>> drawn_values() {
  TrainOptions options;
  std::map<std::string, std::set<std::string>> values;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      for (const std::string& text : option.drawn) {
        set_from_text(option, text);
        values[option.flag].insert(text_of(option));
      }
  return values;
}

bool any_plan(const FuzzCase& fuzz_case, bool (*has)(const TrainOptions&)) {
  return std::ranges::any_of(fuzz_case.plans,
                             [&](const FuzzPlan& plan) { return has(plan.options); });
}

int ulysses_ranks(const FuzzCase& fuzz_case) {
  return plan_of(fuzz_case.last(), fuzz_case.model).options.ulysses_ranks.value_or(1);
}

struct NamedKind {
  std::string_view name;
  bool (*has)(const FuzzCase&, const CaseCheck&);
};
constexpr NamedKind named_kinds[] = {
    {"resumed once", [](const FuzzCase& c, const CaseCheck&) { return c.plans.size() == 2; }},
    {"resumed again", [](const FuzzCase& c, const CaseCheck&) { return c.plans.size() > 2; }},
    {"more than two steps",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.steps > 2; }},
    {"checkpoint written while it trains",
     [](const FuzzCase& c, const CaseCheck&) {
       return any_plan(c, [](const TrainOptions& o) {
         return !o.checkpoint.empty() && o.checkpoint_async && o.checkpoint_interval == 1 &&
                o.steps > 1;
       });
     }},
    {"offloaded to a file",
     [](const FuzzCase& c, const CaseCheck&) {
       return any_plan(c, [](const TrainOptions& o) {
         return o.offload_to != "memory" && o.offload != "none" && o.zero_stage.value_or(0) > 0;
       });
     }},
    {"a schedule of its own",
     [](const FuzzCase& c, const CaseCheck&) {
       return any_plan(c, [](const TrainOptions& o) { return !o.schedule_file.empty(); });
     }},
    {"validated",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.validation_fraction > 0; }},
    {"drops by rank", [](const FuzzCase& c, const CaseCheck&) { return drops_by_rank(c.last()); }},
    {"16 bits, resumed",
     [](const FuzzCase& c, const CaseCheck&) {
       return element_bytes(c.last().options.dtype) == 2 && c.plans.size() > 1;
     }},
    {"a step skipped",
     [](const FuzzCase&, const CaseCheck& check) { return check.skipped_steps > 0; }},
    {"a step skipped, resumed",
     [](const FuzzCase& c, const CaseCheck& check) {
       return check.skipped_steps > 0 && c.plans.size() > 1;
     }},
    {"ulysses above 2", [](const FuzzCase& c, const CaseCheck&) { return ulysses_ranks(c) > 2; }},
    {"ulysses above the heads of keys",
     [](const FuzzCase& c, const CaseCheck&) {
       return ulysses_ranks(c) > c.model.key_value_heads();
     }},
    {"adapters, resumed",
     [](const FuzzCase& c, const CaseCheck&) {
       return c.last().options.lora_rank > 0 && c.plans.size() > 1;
     }},
    {"adapters that have begun to learn",
     [](const FuzzCase& c, const CaseCheck&) { return !c.last().options.lora_init.empty(); }},
    {"subspaces of matrices",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.optimizer == "galore"; }},
    {"steps in backward",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.optimizer_in_backward; }},
    {"compressed gradients",
     [](const FuzzCase& c, const CaseCheck&) { return compresses(c.last().options); }},
    {"projected gradients",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.exchange == "galore"; }},
    {"compressed gradients, resumed",
     [](const FuzzCase& c, const CaseCheck&) {
       return compresses(c.last().options) && c.plans.size() > 1;
     }},
    {"compressed parameters",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.gather != "whole"; }},
    {"local steps",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.local_steps.has_value(); }},
    {"local steps, resumed",
     [](const FuzzCase& c, const CaseCheck&) {
       return c.last().options.local_steps.has_value() && c.plans.size() > 1;
     }},
    {"experts", [](const FuzzCase& c, const CaseCheck&) { return c.model.experts.exist(); }},
    {"the same experts for all tokens",
     [](const FuzzCase& c, const CaseCheck&) { return c.same_experts; }},
    {"experts in groups",
     [](const FuzzCase& c, const CaseCheck&) { return c.last().options.router_groups > 1; }},
    {"experts balanced over the batch",
     [](const FuzzCase& c, const CaseCheck&) {
       return c.last().options.router_balance_type == "global_aux_loss";
     }},
    {"experts on several ranks",
     [](const FuzzCase& c, const CaseCheck&) {
       return c.model.experts.exist() && plan_of(c.last(), c.model).expert_ranks() > 1;
     }},
    {"parameter server",
     [](const FuzzCase& c, const CaseCheck&) {
       return technique(c.last().options.technique).has_servers;
     }},
};

}  // namespace

void Coverage::add(const FuzzCase& fuzz_case, const CaseCheck& check) {
  for (const FuzzPlan& plan : fuzz_case.plans) add(plan);
  for (const NamedKind& kind : named_kinds) cases_[kind.name] += kind.has(fuzz_case, check) ? 1 : 0;
}

std::vector<Coverage::Kind> Coverage::kinds() const {
  std::vector<Kind> kinds;
  for (const NamedKind& kind : named_kinds) {
    const auto found = cases_.find(kind.name);
    kinds.push_back({kind.name, found == cases_.end() ? 0 : found->second});
  }
  return kinds;
}

void Coverage::add(const FuzzPlan& plan) {
  TrainOptions options = plan.options;
  std::vector<Value> own;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (!option.drawn.empty() && group.belongs_to(options.technique) &&
          (!option.has_effect || option.has_effect(options)))
        own.emplace_back(option.flag, text_of(option));
  values_.insert(own.begin(), own.end());
  for (const Value& one : own)
    for (const Value& other : own)
      if (one.first != other.first) pairs_.emplace(one, other);
}

std::vector<Coverage::Row> Coverage::rows() const {
  const auto drawn = drawn_values();
  std::int64_t of_all = 0;
  for (const auto& [flag, texts] : drawn) of_all += std::ssize(texts);
  std::vector<Row> rows;
  for (const auto& [flag, texts] : drawn) {
    const std::int64_t own = std::ssize(texts);
    Row row{.flag = flag, .all_values = own, .all_pairs = own * (of_all - own)};
    for (const Value& value : values_)
      row.values += value.first == flag && texts.contains(value.second);
    for (const auto& [one, other] : pairs_)
      row.pairs += one.first == flag && texts.contains(one.second) && drawn.contains(other.first) &&
                   drawn.at(other.first).contains(other.second);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace lockstep
