// Send and receive: every rank sends its data to the right and receives its left neighbour's data.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// out = `in` of the rank to the left. Both have the same count and type and must not overlap.
// Throws like all_reduce.
void send_recv(Communicator& comm, Slice out, Slice in, std::string_view algorithm = "shift");

using SendRecvAlgorithm = Algorithm<Slice>;
const std::vector<SendRecvAlgorithm>& send_recv_algorithms();

SendRecvAlgorithm send_recv_shift();

}  // namespace lockstep
