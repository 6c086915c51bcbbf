// Asynchronous: servers apply every push on its own. Under `asp` workers never wait for each other;
// under `ssp` they wait only for workers that are too far behind. Ranks take no step together, so
// this mode has its own training loop.
#pragma once

#include "parallel/rank/training.h"

namespace lockstep {

// Every rank calls it. Traffic is that of the whole run. If a worker fails, the others continue and
// the result names it.
void train_asynchronously(Training& training, const OnStep& on_step);

}  // namespace lockstep
