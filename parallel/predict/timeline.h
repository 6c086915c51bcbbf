// A replay of a step's events, which predicts when they happen: a rank takes them in the order of
// order.h. It gathers and reduces in the background, one after another, and waits where a pass needs
// parameters, where a buffer of gradients is needed again, and at the end. All ranks take the same time
// for the same work.
//
//   gather   begins when the events before it have been taken, after all earlier exchanges
//   use      begins when the unit is gathered
//   reduce   waits until the unit before it is reduced, then is like a gather
#pragma once

#include "collectives/base/links.h"
#include "models/ops/roofline_backend.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

// The seconds of a rank's step, and for how many of them it waits for exchanges of units.
struct StepTimes {
  double whole = 0, waiting = 0;
};

// Replays a step on processors and links of given rates, with the norm, the update and the
// gathering of updated parameters. Throws Error (bad_input) if the work is split other than over
// replicas, if shards are in several groups, or if anything is offloaded.
StepTimes predicted_step(const Plan& plan, int rank, const Roofline& roofline,
                         const LinkModel& links);

}  // namespace lockstep
