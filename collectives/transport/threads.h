// The threads transport: the ranks are threads of this process and reach each other's memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"

namespace lockstep {

struct ThreadsOptions {
  int ranks = 1;
  int ranks_per_node = 0;  // so many are said to share a node; 0: all
  double timeout_s = 30;
  // Microseconds a waiting rank looks again and again before it sleeps; < 0: the default. With more
  // ranks than cores it gives its core away between looks.
  double spin_us = -1;
};

// The ends of a new world, one for each rank. The world lives as long as any of them.
std::vector<std::unique_ptr<Transport>> threads_world(const ThreadsOptions& options);

}  // namespace lockstep
