#include "parallel/train/gather_parts.h"

#include "parallel/rank/first_weights.h"
#include "parallel/rank/rank_model.h"

namespace lockstep {

void gather_parts(RankContext& context, const Plan& plan, ParameterSet set, Slice own,
                  const PartSink& sink) {
  Communicator& world = context.world;
  world.set_label("weights");
  for (int rank = 0; rank < plan.computing_ranks(); ++rank) {
    if (plan.replicas(rank, set).copy != 0 || (rank != world.rank() && world.rank() != 0)) continue;
    const RankOutline outline(plan, rank);
    const Parameters& part = outline.parameters(set);
    if (part.count() == 0) continue;
    if (rank == 0) {
      give(part, own, sink);
    } else if (world.rank() == rank) {
      world.send(own, 0);
    } else {
      const Tensor theirs({part.count()}, plan.options.dtype, context.ledger, MemoryUse::workspace);
      world.recv(theirs.slice(), rank);
      give(part, theirs.slice(), sink);
    }
  }
}

}  // namespace lockstep
