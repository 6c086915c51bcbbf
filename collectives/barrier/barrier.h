// Barrier: no rank leaves before every rank has come.
#pragma once

#include "collectives/communicator.h"

namespace lockstep {

void barrier(Communicator& comm);

void dissemination_barrier(Communicator& comm);

}  // namespace lockstep
