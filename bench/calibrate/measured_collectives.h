// Measures collectives between ranks on this machine.
#pragma once

#include <functional>
#include <vector>

#include "bench/calibrate/machine_profile.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

// Adds the times of the operations that training uses, with the algorithms `auto` and `ring`, for
// each number of ranks, which are threads with data on `device`, and from 1 KiB to `most_bytes`. Calls
// progress(share) from time to time.
void measure_collectives(MachineProfile& profile, Device& device, const std::vector<int>& ranks,
                         Count most_bytes, const std::function<void(double)>& progress);
// The same between the processes that mpirun started. Every process calls it, with the same claims. Returns
// whether this one is rank 0: only rank 0 adds times. Throws Error (bad_input) if they are not all on one
// node.
bool measure_collectives_of_processes(MachineProfile& profile, Count most_bytes,
                                      const Claims& claims,
                                      const std::function<void(double)>& progress);

}  // namespace lockstep
