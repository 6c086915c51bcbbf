// Asynchronous: servers apply every push by itself. Under `asp` workers never wait for each other,
// under `ssp` only for those that are too far behind. Ranks take no step together, so this training
// has a loop of its own.
#pragma once

#include "parallel/training.h"

namespace lockstep {

// Every rank calls it. Traffic is that of the whole run. A worker that fails leaves the others to
// go on; the result names it.
void train_asynchronously(Training& training, const OnStep& on_step);

}  // namespace lockstep
