#include "parallel/rank/placement.h"

namespace lockstep {
namespace {

Placed along_tensor(const Sharing& sharing) {
  if (sharing.is_partial) return Placed::partial;
  return sharing.ranks == 1 ? Placed::sharded : Placed::replicated;
}

// Each stage has its own parameters, except for the embedding that is tied to the head of the last
// stage.
Placed along_pipeline(const Plan& plan, bool is_tied) {
  const auto [first, last] = plan.ends_of_pipeline();
  return is_tied && first != last ? Placed::partial : Placed::sharded;
}

// Merges neighbouring columns that lie in the same way.
std::vector<Region> by_sharing(const Region& region) {
  std::vector<Region> regions;
  for (const Region::Columns& columns : region.columns) {
    if (regions.empty() || regions.back().columns.back().sharing != columns.sharing)
      regions.push_back({.rows = region.rows, .columns = {}});
    regions.back().columns.push_back(columns);
  }
  return regions;
}

}  // namespace

std::string_view name_of(Placed placed) {
  switch (placed) {
    case Placed::sharded:
      return "sharded";
    case Placed::replicated:
      return "replicated";
    case Placed::partial:
      return "partial";
  }
  return "";
}

std::vector<Placement> placements_of(const Plan& plan, int rank) {
  const RankOutline outline(plan, rank);
  const EmbeddingCopies copies = outline.embedding_copies();
  std::vector<Placement> placements;
  int index = 0;
  for (const Parameter& parameter : outline.parameters().list()) {
    const bool is_tied = copies.contain(index++);
    for (Region& region : by_sharing(parameter.region)) {
      const Sharing sharing = region.columns.front().sharing;
      Placement placement{.name = parameter.name,
                          .region = std::move(region),
                          .along = {},
                          .sharers = sharing.ranks};
      for (const Axis axis : plan.mesh.order()) {
        if (plan.length(axis) == 1) continue;
        // Ranks along dp process different sequences; ranks along cp process different tokens of
        // each.
        placement.along.emplace_back(axis, axis == Axis::tp   ? along_tensor(sharing)
                                           : axis == Axis::pp ? along_pipeline(plan, is_tied)
                                                              : Placed::partial);
      }
      placements.push_back(std::move(placement));
    }
  }
  return placements;
}

}  // namespace lockstep
