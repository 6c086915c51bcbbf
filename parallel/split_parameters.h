// The parameters of a model that no rank holds whole: their weights go from the whole model on rank
// 0 to every rank's part, as its parameters' cuts say, and back; and their gradients have one norm.
#pragma once

#include "collectives/communicator.h"
#include "models/parameters.h"

namespace lockstep {

// Every rank calls both, with its own parameters; `whole` is null but on rank 0. One message for
// each rank.
void scatter_weights(Communicator& world, const Parameters* whole, Parameters& own);
// Of parameters that several ranks have, those count that are no copies.
void gather_weights(Communicator& world, Parameters* whole, const Parameters& own);

// The sum of squares of this rank's gradients that no other rank counts.
double counted_squared_norm(const Parameters& own);

// Elements that lie side by side in a flat buffer.
struct FlatRange {
  Count first = 0, count = 0;
};

}  // namespace lockstep
