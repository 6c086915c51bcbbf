// The benchmark of a parameter server: a push of gradients and a pull of their sum by all workers,
// beside all-reduces among the same workers.
#pragma once

#include <string>
#include <vector>

#include "collectives/operations.h"

namespace lockstep {

// The layouts for `workers` workers: "1", "2", ... servers apart, "all" for as many servers as
// workers, "colocated" for a server beside every worker. Throws Error (bad_input) for others.
// Returns the servers apart that the largest of them needs.
int servers_needed(const std::vector<std::string>& layouts, int workers);

// An operation whose algorithms are the layouts and the all-reduces named. Every rank of `world`
// calls it; the first `workers` of them work, the others are servers or stand by.
OperationEntry ps_operation(Communicator& world, int workers,
                            const std::vector<std::string>& layouts,
                            const std::vector<std::string>& all_reduces);

}  // namespace lockstep
