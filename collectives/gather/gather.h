// Gather: the root ends with all ranks' chunks.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// Rank i provides Chunks(data, p)[i]; afterwards rank `root` holds all of data.
void gather(Communicator& comm, Slice data, int root = 0);

void linear_gather(Communicator& comm, Slice data, int root);

// The texts of all ranks, in their order, on `root`; an empty vector elsewhere. Texts may differ in
// length.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root = 0);

}  // namespace lockstep
