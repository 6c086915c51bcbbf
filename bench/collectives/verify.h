// Data whose results can be checked exactly, for every operation and type.
//
// Inputs are distinct for every rank and index and small integers, so every order of summation
// gives the same bits, also in 16 bits (for products and for bf16 up to some 20 ranks).
#pragma once

#include "collectives/operations.h"

namespace lockstep {

// Fills what the operation takes from this rank; the rest of the buffer is made wrong on purpose.
void fill_input(Slice data, const OperationEntry& entry, const Problem& problem, int rank,
                ReduceOp op);

// Elements of `result` that are not what the operation gives this rank, if it is one of those that
// take part.
Count wrong_elements(Slice result, const OperationEntry& entry, const Problem& problem, int rank,
                     ReduceOp op);

}  // namespace lockstep
