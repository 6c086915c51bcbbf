// The memory of the ranks, as nccl-tests reports it with -M 1.
#pragma once

#include <string>

#include "bench/collectives/collective.h"

namespace lockstep {

// Of the rank that holds the most. Every rank calls it with what it held before and its buffers.
BenchMemory memory_of_ranks(RankContext& context, double initial, double buffers);

// "Initialization 0 B | User-Allocated 2.00 MB | Collective 512 KB | Total  2.50 MB"
std::string memory_text(const BenchMemory& memory);

}  // namespace lockstep
