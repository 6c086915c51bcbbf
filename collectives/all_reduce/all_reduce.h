// All-reduce: every rank ends with the combination of all ranks' data. The menu of its algorithms.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// data (any count, also 0) = op over the ranks of data, in place, the same bits on every rank.
// Throws Error when the algorithm's name is unknown (bad_input), when ranks disagree (mismatch),
// and when one fails or stays away.
void all_reduce(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum,
                std::string_view algorithm = "ring");

// What rank `rank` of `ranks` sends for `count` elements; exact, not an estimate.
struct Traffic {
  Count messages = 0;
  Count elements = 0;
};

struct AllReduceAlgorithm {
  std::string_view name;
  void (*run)(Communicator&, Slice, ReduceOp);
  Traffic (*sent)(int rank, int ranks, Count count);
  std::string_view formula;  // bytes sent per rank; n bytes of data, p ranks
  bool needs_vendor;         // only on a transport with collectives of its own
};
const std::vector<AllReduceAlgorithm>& all_reduce_algorithms();
const AllReduceAlgorithm& all_reduce_algorithm(std::string_view name);

void ring_all_reduce(Communicator& comm, Slice data, ReduceOp op);
Traffic ring_all_reduce_sent(int rank, int ranks, Count count);
void vendor_all_reduce(Communicator& comm, Slice data, ReduceOp op);

}  // namespace lockstep
