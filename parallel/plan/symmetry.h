// Which ranks of a plan behave identically in virtual time, so that one of them can stand in for
// all (collectives/transport/launch/launch_symmetric.h).
//
//   along tp   all: a rank may have a row of the vocabulary less than the first, which runs
//   along cp   all with zig-zag tokens, if they exchange no heads
//   along dp   all that have as many sequences
//
// along cp and dp with rings only; other algorithms have ranks that differ, or distant peers.
//
// On nodes, a rank's messages must take links like those of the ranks for which it stands in. If
// some members of a group share a node and others do not, all ranks of the first node of each stage
// run.
#pragma once

#include <vector>

#include "collectives/base/links.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// Returns for each rank the rank that stands in for it, or itself. Every rank runs itself if no
// others behave identically.
std::vector<int> stand_ins(const Plan& plan, const LinkModel& links);

}  // namespace lockstep
