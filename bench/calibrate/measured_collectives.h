// Measures collectives between ranks that are threads of this machine.
#pragma once

#include <functional>
#include <vector>

#include "bench/calibrate/machine_profile.h"

namespace lockstep {

// Adds the times of the operations that training uses, with the algorithms `auto` and `ring`, for
// each number of ranks and from 1 KiB to `most_bytes`. Calls progress(share) from time to time.
void measure_collectives(MachineProfile& profile, const std::vector<int>& ranks, Count most_bytes,
                         const std::function<void(double)>& progress);

}  // namespace lockstep
