#include "models/optimizers/optimizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "models/ops/narrow_types.h"
#include "models/optimizers/adamw.h"
#include "models/optimizers/galore.h"
#include "models/optimizers/muon.h"
#include "models/optimizers/sgd.h"

namespace lockstep {
namespace {

struct OptimizerEntry {
  std::string_view name, summary;
  std::vector<std::string_view> flags;  // of its own options
  std::vector<std::string_view> (*states)(const OptimizerSettings&);
  // Whether it keeps a state of this name for a parameter's elements. None: each for all.
  bool (*keeps)(std::string_view state, const Parameter&) = nullptr;
  // Of hidden matrices, which it then needs whole.
  const MatrixRuleEntry* rule = nullptr;
  std::unique_ptr<Optimizer> (*make)(std::span<const Parameter>, Count first, Slice gradients,
                                     const OptimizerSettings&, Backend&,
                                     std::unique_ptr<StateStorage>);
};

template <typename Made>
std::unique_ptr<Optimizer> make(std::span<const Parameter> list, Count first, Slice gradients,
                                const OptimizerSettings& options, Backend& backend,
                                std::unique_ptr<StateStorage> storage) {
  return std::make_unique<Made>(list, first, gradients, options, backend, std::move(storage));
}

const std::vector<OptimizerEntry>& optimizers() {
  static const std::vector<OptimizerEntry> entries = {
      {.name = "adamw",
       .summary = "whose weight decay is a step of its own",
       .flags = {"beta1", "beta2", "eps"},
       .states = AdamW::states,
       .make = make<AdamW>},
      {.name = "sgd",
       .summary = "with momentum, whose weight decay is a part of the gradient",
       .flags = {"momentum"},
       .states = Sgd::states,
       .make = make<Sgd>},
      {.name = "muon",
       .summary = "with orthogonal steps for the matrices of hidden layers, AdamW for the rest",
       .flags = {"beta1", "beta2", "eps", "muon-lr", "muon-momentum"},
       .states = Muon::states,
       .keeps = Muon::keeps,
       .rule = &Muon::rule,
       .make = make<Muon>},
      {.name = "galore",
       .summary =
           "with steps of AdamW in subspaces of the matrices of hidden layers, AdamW for the rest",
       .flags = {"beta1", "beta2", "eps", "galore-rank", "galore-period", "galore-scale",
                 "galore-projection"},
       .states = Galore::states,
       .keeps = Galore::keeps,
       .rule = &Galore::rule,
       .make = make<Galore>},
  };
  return entries;
}

const OptimizerEntry& find_optimizer(std::string_view name) {
  const auto found = std::ranges::find(optimizers(), name, &OptimizerEntry::name);
  require(found != optimizers().end(), fmt::format("no optimizer '{}'", name),
          fmt::format("there are {}", fmt::join(optimizer_names(), ", ")));
  return *found;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerEntry& entry : optimizers()) names.emplace_back(entry.name);
  return names;
}

std::string optimizer_summaries() {
  std::vector<std::string> summaries;
  for (const OptimizerEntry& entry : optimizers())
    summaries.push_back(fmt::format("{}, {}", entry.name, entry.summary));
  return fmt::format("{}", fmt::join(summaries, "; "));
}

bool has_option(std::string_view optimizer, std::string_view flag) {
  return std::ranges::count(find_optimizer(optimizer).flags, flag) > 0;
}

std::string optimizer_for(std::string_view flag) {
  std::vector<std::string> names = optimizer_names();
  std::erase_if(names, [&](const std::string& name) { return !has_option(name, flag); });
  return fmt::format("--optimizer {}", fmt::join(names, " or "));
}

std::vector<std::string_view> states_of(const OptimizerSettings& settings) {
  return find_optimizer(settings.name).states(settings);
}

std::vector<std::string_view> all_states() {
  std::vector<std::string_view> all;
  const auto add = [&](std::string_view state) {
    if (std::ranges::find(all, state) == all.end()) all.push_back(state);
  };
  for (const OptimizerEntry& entry : optimizers()) {
    std::ranges::for_each(entry.states({}), add);
    std::ranges::for_each(matrix_state_names(entry.name), add);
  }
  return all;
}

std::vector<std::string_view> matrix_state_names(std::string_view optimizer) {
  const MatrixRuleEntry* const rule = matrix_rule(optimizer);
  return rule && rule->state_names ? rule->state_names() : std::vector<std::string_view>{};
}

std::vector<MatrixState> matrix_states_of(const OptimizerSettings& settings,
                                          const Parameter& parameter) {
  const MatrixRuleEntry* const rule = matrix_rule(settings.name);
  if (!rule || !rule->states || !parameter.hidden.exist()) return {};
  return rule->states(settings, parameter.hidden);
}

bool keeps_state(std::string_view optimizer, std::string_view state, const Parameter& parameter) {
  const auto keeps = find_optimizer(optimizer).keeps;
  return !keeps || keeps(state, parameter);
}

std::vector<std::string_view> states_of(const OptimizerSettings& settings,
                                        const Parameter& parameter) {
  std::vector<std::string_view> states = states_of(settings);
  std::erase_if(states, [&](std::string_view state) {
    return !keeps_state(settings.name, state, parameter);
  });
  return states;
}

std::vector<StateRange> state_ranges(const OptimizerSettings& settings,
                                     std::span<const Parameter> list, Range range) {
  std::vector<StateRange> ranges;
  for (const Parameter& parameter : list) {
    const Count begin = std::max(parameter.offset, range.first);
    const Count end = std::min(parameter.offset + parameter.count, range.first + range.count);
    if (begin >= end) continue;
    std::vector<std::string_view> names = states_of(settings, parameter);
    if (!ranges.empty() && ranges.back().names == names)
      ranges.back().range.count += end - begin;
    else
      ranges.push_back({{begin - range.first, end - begin}, std::move(names)});
  }
  return ranges;
}

Count optimizer_bytes(const OptimizerSettings& settings, DType dtype, const Parameter& parameter) {
  const auto numbers = std::ssize(states_of(settings, parameter)) + (is_narrow(dtype) ? 1 : 0);
  return numbers * element_bytes(statistics_type(dtype));
}

Count optimizer_bytes(const OptimizerSettings& settings, DType dtype,
                      std::span<const Parameter> list, Range range) {
  Count numbers = is_narrow(dtype) ? range.count : 0;
  for (const StateRange& part : state_ranges(settings, list, range))
    numbers += std::ssize(part.names) * part.range.count;
  return numbers * element_bytes(statistics_type(dtype));
}

std::string optimizer_formula(const OptimizerSettings& settings, DType dtype,
                              std::string_view psi) {
  const Parameter vector{.name = "vector"}, hidden{.name = "hidden", .hidden = {1, {1}}};
  const Count element = element_bytes(statistics_type(dtype));
  const Count all = optimizer_bytes(settings, dtype, vector) / element,
              less = all - optimizer_bytes(settings, dtype, hidden) / element;
  // 16-bit values have states of 4 bytes; others have states of their own type.
  const auto times = [&](Count number, std::string_view what) {
    if (is_narrow(dtype)) return fmt::format("{} * {}", number * element, what);
    return number == 1 ? std::string(what) : fmt::format("{} * {}", number, what);
  };
  if (all == 0) return "0";
  const std::string hidden_psi = fmt::format("{}_hidden", psi);
  const std::string beta = is_narrow(dtype) ? "" : " * beta";
  if (less == 0) return times(all, psi) + beta;
  const std::string rest = fmt::format("{} - {}", times(all, psi), times(less, hidden_psi));
  return is_narrow(dtype) ? rest : fmt::format("({}){}", rest, beta);
}

bool needs_whole_matrices(std::string_view optimizer) { return matrix_rule(optimizer) != nullptr; }

const MatrixRuleEntry* matrix_rule(std::string_view optimizer) {
  return find_optimizer(optimizer).rule;
}

bool needs_whole(const OptimizerSettings& settings, const Parameter& parameter) {
  return needs_whole_matrices(settings.name) && parameter.hidden.exist();
}

std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings,
                                         std::span<const Parameter> list, Count first,
                                         Slice gradients, Backend& backend,
                                         std::unique_ptr<StateStorage> storage) {
  return find_optimizer(settings.name)
      .make(list, first, gradients, settings, backend, std::move(storage));
}

std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings,
                                         std::span<const Parameter> list, Count first, Slice values,
                                         Slice gradients, Backend& backend, Ledger& ledger) {
  return new_optimizer(
      settings, list, first, gradients, backend,
      resident_states(values, state_ranges(settings, list, {first, values.count}), ledger));
}

std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings, Parameters& parameters,
                                         Backend& backend, Ledger& ledger) {
  return new_optimizer(settings, parameters.list(), 0, parameters.values(), parameters.gradients(),
                       backend, ledger);
}

}  // namespace lockstep
