// Divides the ranks of a communicator into groups, each with a communicator of its own.
#pragma once

#include <memory>

#include "collectives/communicator.h"

namespace lockstep {

// Returns the communicator of the ranks with this rank's color, ordered by (key, rank); null for a
// negative color. Every rank of `comm` calls it. An all-gather tells each rank the others' choices.
std::unique_ptr<Communicator> split(Communicator& comm, int color, int key);

}  // namespace lockstep
