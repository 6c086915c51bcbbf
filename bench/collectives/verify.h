// Data whose results can be checked exactly, for every operation and type.
//
// Inputs are small integers that differ between ranks and indices, so every order of summation gives
// the same bits. Where a type cannot add those of all ranks exactly, only some ranks' are not 0, at
// each index others. Products beyond a type's range end at its largest value or infinity in any order.
#pragma once

#include "collectives/operations/operations.h"

namespace lockstep {

// Fills this rank's input. The rest of the buffer gets wrong values on purpose. Where all
// ranks' numbers count, they differ from those of the `round` before.
void fill_input(Slice data, const OperationEntry& entry, const Problem& problem, int rank,
                ReduceOp op, int round = 0);

// The number of elements of `result` that differ from this rank's expected result; 0 if the rank
// takes no part. `is_scaled`: each rank has multiplied its input with its factor.
Count wrong_elements(Slice result, const OperationEntry& entry, const Problem& problem, int rank,
                     ReduceOp op, int round = 0, bool is_scaled = false);

// What a rank multiplies its input with, if sums are scaled.
int input_factor(int rank);
// into = from * factor, in the host's memory.
void multiply(Slice into, Slice from, int factor);

}  // namespace lockstep
