#include "parallel/rank/placements.h"

#include "parallel/rank/rank_model.h"

namespace lockstep {

std::vector<PlacedColumns> placements_of(const Plan& plan, int rank) {
  std::vector<PlacedColumns> all;
  const RankOutline outline(plan, rank);
  for (const ParameterSet set : outline.model().sets())
    for (const Parameter& parameter : outline.parameters(set).list()) {
      bool is_first = true;
      for (const Region::Columns& columns : parameter.region.columns) {
        if (is_first || all.back().placement != columns.placement)
          all.push_back({.parameter = parameter.name,
                         .region = {.rows = parameter.region.rows, .columns = {}},
                         .placement = columns.placement,
                         .set = set});
        const Packing& packing = parameter.packing;
        all.back().region.columns.push_back(columns);
        all.back().region.columns.back().range = {packing.numbers(columns.range.first),
                                                  packing.numbers(columns.range.count)};
        is_first = false;
      }
    }
  return all;
}

}  // namespace lockstep
