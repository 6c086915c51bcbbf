// lockstep mesh: the coordinates of ranks along the axes of parallelism, and their groups.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "collectives/base/file.h"
#include "parallel/mesh.h"

namespace lockstep {
namespace {

struct MeshCommand {
  int tp = 1, cp = 1, dp = 1, pp = 1;
  std::string order = std::string(Mesh::usual_order), json;
};

struct NamedGroups {
  std::string name, who;
  std::vector<Mesh::Group> groups;
};

std::vector<NamedGroups> groups_of(const Mesh& mesh) {
  using enum Axis;
  return {{"tp", "tensor parallel", mesh.groups({tp})},
          {"cp", "context parallel", mesh.groups({cp})},
          {"dp", "data parallel", mesh.groups({dp})},
          {"pp", "pipeline", mesh.groups({pp})},
          {"tp-pp", "model parallel", mesh.groups({tp, pp})},
          {"tp-cp", "one stage of one model", mesh.groups({tp, cp})},
          {"dp-cp", "gradients of one shard", mesh.groups({dp, cp})},
          {"tp-dp", "one stage of all models", mesh.groups({tp, dp})},
          {"embedding", "both ends of a tied embedding", mesh.embedding_groups()}};
}

std::string text_of(const Mesh::Group& group) { return fmt::format("[{}]", fmt::join(group, ",")); }

// A row for each coordinate along pp and a box for each along dp. In a box, one row of tp ranks for
// each coordinate along cp.
void draw(const Mesh& mesh) {
  const int width = static_cast<int>(fmt::format("{}", mesh.size() - 1).size()) + 1;
  const int box = width * mesh.length(Axis::tp) + 1;
  AlongAxes place(0);
  fmt::print("{:8}", "");
  for (int dp = 0; dp < mesh.length(Axis::dp); ++dp)
    fmt::print("  {:<{}}", fmt::format("dp {}", dp), std::max(box, 5));
  fmt::print("\n");
  for (place[Axis::pp] = 0; place[Axis::pp] < mesh.length(Axis::pp); ++place[Axis::pp])
    for (place[Axis::cp] = 0; place[Axis::cp] < mesh.length(Axis::cp); ++place[Axis::cp]) {
      fmt::print("{:<8}", place[Axis::cp] == 0 ? fmt::format("pp {}", place[Axis::pp]) : "");
      for (place[Axis::dp] = 0; place[Axis::dp] < mesh.length(Axis::dp); ++place[Axis::dp]) {
        std::string ranks;
        for (place[Axis::tp] = 0; place[Axis::tp] < mesh.length(Axis::tp); ++place[Axis::tp])
          ranks += fmt::format("{:>{}}", mesh.rank_at(place), width);
        place[Axis::tp] = 0;
        fmt::print("  {:<{}}", ranks, std::max(box, 5));
      }
      place[Axis::dp] = 0;
      fmt::print("\n");
    }
}

int run(const MeshCommand& c) {
  AlongAxes lengths(1);
  lengths[Axis::tp] = c.tp, lengths[Axis::cp] = c.cp, lengths[Axis::dp] = c.dp;
  lengths[Axis::pp] = c.pp;
  const Mesh mesh(lengths, c.order);
  if (!c.json.empty()) check_writable(c.json);
  std::string order;
  for (const Axis axis : mesh.order())
    order += fmt::format("{}{} {}", order.empty() ? "" : ", ", name_of(axis), mesh.length(axis));
  fmt::print("{} ranks; consecutive ranks are neighbours along the first axis: {}\n\n", mesh.size(),
             order);
  constexpr int most_drawn = 256;
  if (mesh.size() <= most_drawn) {
    draw(mesh);
    fmt::print("\nIn each box, columns are ranks along tp and rows are ranks along cp.\n\n");
  }
  nlohmann::ordered_json file = {{"schema", "lockstep.mesh/1"}, {"ranks", mesh.size()}};
  for (const Axis axis : mesh.order())
    file["lengths"][std::string(name_of(axis))] = mesh.length(axis);
  for (const auto& [name, who, groups] : groups_of(mesh)) {
    file["groups"][name] = groups;
    std::string line;
    for (const Mesh::Group& group : groups) line += text_of(group);
    fmt::print("{:<10} {:<30} {}\n", name, who, line);
  }
  if (!c.json.empty()) write_file(c.json, file.dump(1) + "\n");
  return 0;
}

}  // namespace

void add_mesh(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<MeshCommand>();
  CLI::App* app = program.add_subcommand(
      "mesh",
      "show the groups of ranks along the axes of tensor, context, data and pipeline parallelism");
  app->add_option("--tp", c->tp, "ranks that split every layer")->capture_default_str();
  app->add_option("--cp", c->cp, "ranks that split every sequence")->capture_default_str();
  app->add_option("--dp", c->dp, "replicas of the model")->capture_default_str();
  app->add_option("--pp", c->pp, "pipeline stages")->capture_default_str();
  app->add_option("--order", c->order,
                  "axes, starting with the one along which neighbours are consecutive ranks")
      ->capture_default_str();
  app->add_option("--json", c->json, "write the groups to this file");
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
