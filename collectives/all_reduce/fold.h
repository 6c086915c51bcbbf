// Algorithms that pair ranks need a power of two of them. Of p ranks the p - 2^k behind the last
// power of two hand their data to a partner before, and get the result from it afterwards.
#pragma once

#include "collectives/algorithm.h"

namespace lockstep {

// Ranks that take part: the largest power of two in p.
inline int participants(int p) { return 1 << floor_log2(p); }

// Before: data of participant i = data (op) data of rank participants + i, if there is one.
void fold_in(Communicator& comm, Slice data, ReduceOp op);
// After: the others get the participants' data.
void fold_out(Communicator& comm, Slice data);

// Both for `rank`, with `taking_part` in between if it does.
Traffic folded_traffic(const Problem& problem, int rank, const Traffic& taking_part);
// What both cost at most; 0 for a power of two. The others do not wait for the ranks that fold, so
// it may be less; and what is folded in may have to queue behind the first exchange.
double fold_seconds(const Problem& problem, const LinkModel& links);

}  // namespace lockstep
