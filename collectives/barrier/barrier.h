// Barrier: no rank leaves before every rank has arrived.
#pragma once

#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

void barrier(Communicator& comm, std::string_view algorithm = "auto");

using BarrierAlgorithm = Algorithm<>;
const std::vector<BarrierAlgorithm>& barrier_algorithms();

BarrierAlgorithm barrier_dissemination();
BarrierAlgorithm barrier_direct();

}  // namespace lockstep
