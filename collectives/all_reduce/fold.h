// Algorithms that pair ranks need a power of two of them. Of p ranks, those above the largest power
// of two first send their data to a partner, and get the result from it at the end.
#pragma once

#include "collectives/algorithm.h"

namespace lockstep {

// Returns the number of ranks that take part: the largest power of two <= p.
inline int participants(int p) { return 1 << floor_log2(p); }

// Before: data of participant i = data (op) data of rank participants + i, if that rank exists.
void fold_in(Communicator& comm, Slice data, ReduceOp op);
// After: the other ranks get the result from their partners.
void fold_out(Communicator& comm, Slice data);

// Traffic of both for `rank`; adds `taking_part` if it participates.
Traffic folded_traffic(const Problem& problem, int rank, const Traffic& taking_part);
// Upper bound on the time of both; 0 for a power of two. Other ranks do not wait for those that
// fold, so it may take less. Folded data may queue behind the first exchange.
double fold_seconds(const Problem& problem, const LinkModel& links);

}  // namespace lockstep
