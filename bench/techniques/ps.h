// The benchmark of a parameter server: all workers push gradients and pull their sum. Compared with
// all-reduces among the same workers.
#pragma once

#include <string>
#include <vector>

#include "collectives/operations/operations.h"

namespace lockstep {

// Layouts for `workers` workers: "1", "2", ... dedicated servers; "all": as many servers as
// workers; "colocated": a server on each worker's rank. Returns the number of dedicated server
// ranks that the largest layout needs. Throws Error (bad_input) for other layouts.
int servers_needed(const std::vector<std::string>& layouts, int workers);

// An operation whose algorithms are the given layouts and all-reduces. Every rank of `world` calls
// it: the first `workers` ranks are workers, the others servers or idle.
OperationEntry ps_operation(Communicator& world, int workers,
                            const std::vector<std::string>& layouts,
                            const std::vector<std::string>& all_reduces);

}  // namespace lockstep
