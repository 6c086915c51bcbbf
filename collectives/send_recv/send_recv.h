// Send and receive: every rank sends its data to the right and ends with what the left one sent.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// out = `in` of the rank before; both of one count and type, and apart from each other. Throws as
// all_reduce does.
void send_recv(Communicator& comm, Slice out, Slice in, std::string_view algorithm = "shift");

using SendRecvAlgorithm = Algorithm<Slice>;
const std::vector<SendRecvAlgorithm>& send_recv_algorithms();

SendRecvAlgorithm send_recv_shift();

}  // namespace lockstep
