// All-gather: every rank ends with all ranks' chunks.
#pragma once

#include <string_view>

#include "collectives/communicator.h"

namespace lockstep {

// Rank i provides Chunks(data, p)[i]; afterwards every rank holds all of data.
void all_gather(Communicator& comm, Slice data);

void ring_all_gather(Communicator& comm, Slice data);

}  // namespace lockstep
