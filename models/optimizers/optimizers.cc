#include "models/optimizers/optimizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "models/ops/narrow_types.h"
#include "models/optimizers/adamw.h"
#include "models/optimizers/sgd.h"

namespace lockstep {
namespace {

struct OptimizerEntry {
  std::string_view name, summary;
  std::vector<std::string_view> flags;  // of its own options
  std::vector<std::string_view> (*states)(const OptimizerSettings&);
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
  for (const OptimizerEntry& entry : optimizers())
    for (const std::string_view state : entry.states({}))
      if (std::ranges::find(all, state) == all.end()) all.push_back(state);
  return all;
}

Count optimizer_bytes(const OptimizerSettings& settings, DType dtype) {
  const auto numbers = std::ssize(states_of(settings)) + (is_narrow(dtype) ? 1 : 0);
  return numbers * element_bytes(statistics_type(dtype));
}

std::string optimizer_formula(const OptimizerSettings& settings, DType dtype,
                              std::string_view psi) {
  if (is_narrow(dtype)) return fmt::format("{} * {}", optimizer_bytes(settings, dtype), psi);
  const auto states = std::ssize(states_of(settings));
  if (states == 0) return "0";
  return states == 1 ? fmt::format("{} * beta", psi) : fmt::format("{} * {} * beta", states, psi);
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
  return new_optimizer(settings, list, first, gradients, backend,
                       resident_states(values, states_of(settings).size(), ledger));
}

std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings, Parameters& parameters,
                                         Backend& backend, Ledger& ledger) {
  return new_optimizer(settings, parameters.list(), 0, parameters.values(), parameters.gradients(),
                       backend, ledger);
}

}  // namespace lockstep
