// lockstep mesh: the coordinates of ranks along the axes of parallelism, and their groups.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/limits.h"
#include "parallel/plan/mesh.h"

namespace lockstep {
namespace {

struct MeshCommand {
  AlongAxes lengths = AlongAxes(1);
  int ranks_per_node = 0;
  std::string order = std::string(Mesh::usual_order), json;
};

struct NamedGroups {
  std::string name, who;
  std::vector<Mesh::Group> groups;
};

std::vector<NamedGroups> groups_of(const Mesh& mesh) {
  using enum Axis;
  std::vector<NamedGroups> all;
  for (const Axis axis : mesh.order())
    all.push_back(
        {std::string(name_of(axis)), std::string(entry_of(axis).parallelism), mesh.groups({axis})});
  for (NamedGroups combined :
       {NamedGroups{"tp-pp", "model parallel", mesh.groups({tp, pp})},
        NamedGroups{"tp-cp", "one stage of one model", mesh.groups({tp, cp})},
        NamedGroups{"dp-cp", "gradients of one shard", mesh.groups({dp, cp})},
        NamedGroups{"tp-dp", "one stage of all models", mesh.groups({tp, dp})},
        NamedGroups{"embedding", "both ends of a tied embedding", mesh.embedding_groups()}})
    all.push_back(std::move(combined));
  return all;
}

constexpr std::string_view gap = "..";

// The first `kept - 1` of `parts`, the gap and the last one, unless all fit.
std::string shortened(std::vector<std::string> parts, std::size_t kept, std::string_view between) {
  if (parts.size() > kept)
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(kept) - 1, parts.end() - 1),
        parts.insert(parts.end() - 1, std::string(gap));
  return fmt::format("{}", fmt::join(parts, between));
}

// "0,1", "0-7", "0,8,..,56", "0-7,64-71,..,448-455"
std::string group_text(const Mesh::Group& group) {
  constexpr int shortest_range = 4;
  constexpr std::size_t most_parts = 4;
  std::vector<std::string> parts;
  for (auto first = group.begin(); first != group.end();) {
    auto last = first;
    while (last + 1 != group.end() && *(last + 1) == *last + 1) ++last;
    if (last - first + 1 >= shortest_range)
      parts.push_back(fmt::format("{}-{}", *first, *last));
    else
      for (auto rank = first; rank <= last; ++rank) parts.push_back(fmt::format("{}", *rank));
    first = last + 1;
  }
  return shortened(std::move(parts), most_parts, ",");
}

std::string group_text(const std::vector<Mesh::Group>& groups) {
  constexpr std::size_t width = 60;
  std::vector<std::string> texts;
  for (const Mesh::Group& group : groups) texts.push_back(fmt::format("[{}]", group_text(group)));
  std::string text;
  for (const std::size_t kept : {8, 3, 2}) {
    text = shortened(texts, kept, "");
    if (text.size() <= width) break;
  }
  return text;
}

// Returns the largest number of nodes over which a group is spread.
int nodes_of(const std::vector<Mesh::Group>& groups, int ranks_per_node) {
  std::size_t most = 0;
  for (const Mesh::Group& group : groups) {
    std::set<int> nodes;
    for (const int rank : group) nodes.insert(rank / ranks_per_node);
    most = std::max(most, nodes.size());
  }
  return static_cast<int>(most);
}

// The indices 0 .. length - 1, or the first ones and the last one; -1 stands for those between.
std::vector<int> shown(int length, int most) {
  std::vector<int> indices;
  for (int i = 0; i < length; ++i) {
    if (length <= most || i < most - 2 || i == length - 1) indices.push_back(i);
    if (length > most && i == most - 2) indices.push_back(-1);
  }
  return indices;
}

// The axes of the rows of a drawn mesh, the slowest first: pp, and others that are longer than 1.
std::vector<Axis> row_axes(const Mesh& mesh) {
  std::vector<Axis> rows = {Axis::pp};
  for (const Axis axis : axes())
    if (axis != Axis::tp && axis != Axis::dp && axis != Axis::pp && mesh.length(axis) > 1)
      rows.push_back(axis);
  return rows;
}

AlongAxes place_in_row(const Mesh& mesh, const std::vector<Axis>& along, int row) {
  AlongAxes place(0);
  for (auto axis = along.rbegin(); axis != along.rend(); ++axis) {
    place[*axis] = row % mesh.length(*axis);
    row /= mesh.length(*axis);
  }
  return place;
}

// A column for each coordinate along dp. A cell holds the tp ranks.
void draw(const Mesh& mesh) {
  constexpr int most_rows = 32, width = 100;
  const std::vector<Axis> along = row_axes(mesh);
  const auto cell = [&](AlongAxes place, int dp) {
    place[Axis::dp] = dp;
    return group_text(mesh.group_of(mesh.rank_at(place), {Axis::tp}));
  };
  const int last_dp = mesh.length(Axis::dp) - 1, rows = mesh.length(AxisSpan(along));
  const std::string widest = cell(place_in_row(mesh, along, rows - 1), last_dp);
  const int column =
      static_cast<int>(std::max(widest.size(), fmt::format("dp {}", last_dp).size()) + 2);
  const std::vector<int> columns = shown(last_dp + 1, std::max(3, width / column));
  const auto print_row = [&](const std::string& name, const auto& text) {
    std::string line = fmt::format("{:<14}", name);
    for (const int dp : columns)
      line += dp < 0 ? fmt::format("{:<4}", gap) : fmt::format("{:<{}}", text(dp), column);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  print_row("", [](int dp) { return fmt::format("dp {}", dp); });
  for (const int row : shown(rows, most_rows)) {
    if (row < 0) {
      fmt::print("{}\n", gap);
      continue;
    }
    const AlongAxes place = place_in_row(mesh, along, row);
    std::vector<std::string> name;
    for (const Axis axis : along) name.push_back(fmt::format("{} {}", name_of(axis), place[axis]));
    print_row(fmt::format("{}", fmt::join(name, " ")), [&](int dp) { return cell(place, dp); });
  }
}

void print_groups(const std::vector<NamedGroups>& all, int ranks_per_node) {
  const auto nodes = [&](const std::string& text) {
    return ranks_per_node > 0 ? fmt::format("{:>8}", text) : std::string();
  };
  fmt::print("\n{:<10} {:<30} {:>7} {:>6}{}  ranks of the groups\n", "axes", "a group is", "groups",
             "size", nodes("nodes"));
  for (const auto& [name, who, groups] : all) {
    const auto size = groups.empty() ? 0 : groups.front().size();
    const int spans = ranks_per_node > 0 ? nodes_of(groups, ranks_per_node) : 0;
    fmt::print("{:<10} {:<30} {:>7} {:>6}{}  {}\n", name, who, groups.size(), size,
               nodes(fmt::format("{}", spans)), group_text(groups));
  }
  if (ranks_per_node > 0)
    fmt::print(
        "\nnodes: the most nodes that one group spans; a group on 1 node uses only the "
        "links inside it\n");
}

int run(const MeshCommand& c) {
  constexpr double bytes_of_rank = 400;  // its place in each kind of group, and their text
  double bytes = bytes_of_rank;
  for (const Axis axis : axes()) bytes *= c.lengths[axis];
  require_memory(bytes, "this mesh", "use fewer ranks");
  const Mesh mesh(c.lengths, c.order);
  require(c.ranks_per_node >= 0, fmt::format("--ranks-per-node {}", c.ranks_per_node),
          "use 1 or more, or 0 if nodes do not matter");
  if (!c.json.empty()) check_writable(c.json);
  std::string order;
  for (const Axis axis : mesh.order())
    order += fmt::format("{}{} {}", order.empty() ? "" : ", ", name_of(axis), mesh.length(axis));
  const std::string nodes =
      c.ranks_per_node > 0
          ? fmt::format(" on {} nodes of {}",
                        (mesh.size() + c.ranks_per_node - 1) / c.ranks_per_node, c.ranks_per_node)
          : std::string();
  fmt::print("{} ranks{}; consecutive ranks are neighbours along the first axis: {}\n\n",
             mesh.size(), nodes, order);
  draw(mesh);
  const std::vector<NamedGroups> all = groups_of(mesh);
  print_groups(all, c.ranks_per_node);
  if (c.json.empty()) return 0;
  nlohmann::ordered_json file = {{"schema", "lockstep.mesh/1"}, {"ranks", mesh.size()}};
  for (const Axis axis : mesh.order())
    file["lengths"][std::string(name_of(axis))] = mesh.length(axis);
  if (c.ranks_per_node > 0) file["ranks_per_node"] = c.ranks_per_node;
  for (const auto& [name, who, groups] : all) {
    file["groups"][name] = groups;
    if (c.ranks_per_node > 0) file["nodes"][name] = nodes_of(groups, c.ranks_per_node);
  }
  write_file(c.json, json_text(file));
  return 0;
}

}  // namespace

void add_mesh(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<MeshCommand>();
  CLI::App* app = program.add_subcommand(
      "mesh",
      "show the groups of ranks along the axes of tensor, context, data and pipeline parallelism");
  for (const Axis axis : axes())
    app->add_option(fmt::format("--{}", name_of(axis)), c->lengths[axis],
                    std::string(entry_of(axis).ranks))
        ->capture_default_str();
  app->add_option("--order", c->order,
                  "axes, starting with the one along which neighbours are consecutive ranks")
      ->capture_default_str();
  app->add_option("--ranks-per-node", c->ranks_per_node,
                  "consecutive ranks that share a node: shows how many nodes each group spans");
  app->add_option("--json", c->json, "write the groups to this file");
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
