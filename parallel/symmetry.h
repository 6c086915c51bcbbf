// Which ranks of a plan do the same at the same time in virtual time, so that one of them can run in
// the place of all (collectives/transport/launch_symmetric.h).
//
//   along tp   all: a rank may have a row of the vocabulary less than the first, which runs
//   along cp   all with zig-zag tokens, if they exchange no heads
//   along dp   all that have as many sequences
//
// On nodes, a rank's messages must also take the links of those in whose place it runs. If some
// members of a group share a node and others do not, all ranks of the first node of each stage run.
#pragma once

#include <vector>

#include "collectives/base/links.h"
#include "parallel/plan.h"

namespace lockstep {

// By rank: the rank that runs in its place, or itself. Every rank runs itself where no others do the
// same.
std::vector<int> stand_ins(const Plan& plan, const LinkModel& links);

}  // namespace lockstep
