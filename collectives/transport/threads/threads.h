// The threads transport: ranks are threads of this process and access each other's memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"

namespace lockstep {

struct ThreadsOptions {
  int ranks = 1;
  int ranks_per_node = 0;  // how many are treated as one node; 0: all
  double timeout_s = 30;
  // Microseconds for which a waiting rank spins before it sleeps; < 0: the default. With more ranks
  // than cores it yields between checks.
  double spin_us = -1;
};

// The ends of a new world, one for each rank. The world lives as long as any of them.
std::vector<std::unique_ptr<Transport>> threads_world(const ThreadsOptions& options);

}  // namespace lockstep
