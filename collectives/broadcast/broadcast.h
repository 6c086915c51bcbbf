// Broadcast: every rank ends with the root's data.
#pragma once

#include "collectives/communicator.h"

namespace lockstep {

// data of rank `root` is copied to every rank.
void broadcast(Communicator& comm, Slice data, int root = 0);

void binomial_broadcast(Communicator& comm, Slice data, int root);

}  // namespace lockstep
