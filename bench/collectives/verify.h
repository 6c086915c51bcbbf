// Data whose results can be checked exactly, for every operation and type.
//
// Inputs are small integers, distinct for every rank and index, so every order of summation gives
// the same bits, even in 16 bits (for products and for bf16 up to about 20 ranks).
#pragma once

#include "collectives/operations/operations.h"

namespace lockstep {

// Fills this rank's input. The rest of the buffer gets wrong values on purpose. Every element
// differs from that of the `round` before.
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
