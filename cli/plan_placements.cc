#include "cli/plan_placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>
#include <vector>

#include "parallel/rank/placements.h"

namespace lockstep {
namespace {

// How it lies along the axes that are longer than 1.
std::vector<std::pair<std::string_view, Placed>> placed_along(const Plan& plan,
                                                              const PlacedColumns& columns) {
  std::vector<std::pair<std::string_view, Placed>> along;
  for (const Axis axis : plan.mesh.order())
    if (plan.length(axis) > 1) along.emplace_back(name_of(axis), columns.placement[axis].placed);
  if (columns.set == ParameterSet::experts) along.emplace_back("ep", Placed::sharded);
  return along;
}

// All blocks have the same placements, and so do their experts: parameters of one kind are one line.
std::string kind_of(const std::string& parameter) {
  return std::regex_replace(parameter, std::regex("(^h|experts)\\.[0-9]+\\."), "$1.*.");
}

}  // namespace

void print_placements(const Plan& plan, int rank) {
  if (plan.ranks == 1) return;
  fmt::print("\nparameters of rank {}, by rows and columns of the whole\n", rank);
  std::vector<std::string> lines;
  const std::vector<PlacedColumns> placements = placements_of(plan, rank);
  std::size_t width = 22;
  for (const PlacedColumns& placed : placements)
    width = std::max(width, kind_of(placed.parameter).size());
  for (const PlacedColumns& placed : placements) {
    std::string columns, along;
    for (const Region::Columns& c : placed.region.columns)
      columns += fmt::format("{}{}:{}", columns.empty() ? "" : " ", c.range.first,
                             c.range.first + c.range.count);
    for (const auto& [axis, how] : placed_along(plan, placed))
      along += fmt::format("  {} {:<10}", axis, name_of(how));
    const Range rows = placed.region.rows;
    const int sharers = placed.placement[Axis::tp].ranks;
    lines.push_back(fmt::format(
        "{:<{}} [{:<50}{}{}", kind_of(placed.parameter), width,
        fmt::format("{}:{}, {}]", rows.first, rows.first + rows.count, columns), along,
        sharers > 1 && sharers < plan.length(Axis::tp) ? fmt::format("over {} neighbours", sharers)
                                                       : ""));
  }
  for (auto line = lines.begin(); line != lines.end(); ++line)
    if (std::find(lines.begin(), line, *line) == line) fmt::print("{}\n", *line);
}

nlohmann::ordered_json placements_json(const Plan& plan, int rank) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PlacedColumns& placed : placements_of(plan, rank)) {
    nlohmann::ordered_json along = nlohmann::ordered_json::object();
    for (const auto& [axis, how] : placed_along(plan, placed))
      along[std::string(axis)] = name_of(how);
    all.push_back({{"name", placed.parameter}, {"placement", along}});
  }
  return all;
}

}  // namespace lockstep
