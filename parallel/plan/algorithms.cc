#include "parallel/plan/algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view automatic = "auto";
constexpr Operation collectives[] = {Operation::all_reduce, Operation::reduce_scatter,
                                     Operation::all_gather};

const std::vector<AnyAlgorithm>& table_of(Operation collective) {
  return find_operation(name_of(collective)).algorithms;
}

bool has_algorithm(Operation collective, const std::string& name) {
  return name == automatic || std::ranges::count(table_of(collective), name, &AnyAlgorithm::name);
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text + "+");
  for (std::string name; std::getline(words, name, '+');) names.push_back(name);
  return names;
}

// A collective of a plan, and the number of its ranks. Groups that keep shards between forward and
// backward divide the ranks, so that they are a power of two if those are.
struct Use {
  Operation collective;
  int ranks;
};

std::vector<Use> uses_of(const Plan& plan) {
  if (plan.zero_stage() == 0) return {{Operation::all_reduce, plan.copies()}};
  const Operation reduction =
      plan.all_reduces_gradients() ? Operation::all_reduce : Operation::reduce_scatter;
  std::vector<Use> uses = {{reduction, plan.shards()}, {Operation::all_gather, plan.shards()}};
  if (plan.options.replicas > 1) uses.push_back({Operation::all_reduce, plan.options.replicas});
  return uses;
}

std::string tables_of(const std::vector<Use>& uses) {
  std::vector<std::string> all;
  for (const Use& use : uses) {
    std::vector<std::string> names;
    for (const AnyAlgorithm& algorithm : table_of(use.collective)) names.push_back(algorithm.name);
    all.push_back(fmt::format("{} has {}", name_of(use.collective), fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

// "" if the collective has none of the plan's names.
std::string found_name(const Plan& plan, Operation collective) {
  for (const std::string& name : names_in(plan.options.algorithm))
    if (has_algorithm(collective, name)) return name;
  return "";
}

}  // namespace

std::string algorithm_of(const Plan& plan, Operation collective) {
  const std::string name = found_name(plan, collective);
  if (name.empty())
    find_algorithm(table_of(collective), name_of(collective), plan.options.algorithm);
  return name;
}

void check_algorithms(const Plan& plan) {
  const std::string& text = plan.options.algorithm;
  const std::vector<Use> uses = uses_of(plan);
  for (const auto& [collective, ranks] : uses) {
    // The error for a single collective lists its names.
    if (uses.size() == 1) algorithm_of(plan, collective);
    const std::string name = found_name(plan, collective);
    require(
        !name.empty(),
        fmt::format("--algorithm {}: {} has no algorithm of that name", text, name_of(collective)),
        fmt::format("choose auto, a name that all have, or one for each, joined by '+': {}",
                    tables_of(uses)));
    const AnyAlgorithm* const algorithm = closed_forms(collective, name);
    require(!algorithm || algorithm->need != Need::power_of_two_ranks ||
                std::has_single_bit(static_cast<unsigned>(ranks)),
            fmt::format("{}/{} needs a power of two of ranks, there are {}", name_of(collective),
                        name, ranks),
            "choose another --algorithm");
  }
  for (const std::string& name : names_in(text))
    require(
        std::ranges::any_of(collectives, [&](Operation each) { return has_algorithm(each, name); }),
        fmt::format("--algorithm {}: no algorithm is named '{}'", text, name),
        "choose from these: " + tables_of(uses));
}

const AnyAlgorithm* closed_forms(Operation collective, std::string_view name) {
  if (name == automatic) return nullptr;
  return &find_algorithm(table_of(collective), name_of(collective), name);
}

}  // namespace lockstep
