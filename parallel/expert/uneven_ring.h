// Rings over parts that need not be equal: part i is that of rank i. P ranks; part i has c(i) elements,
// all have S.
//
//   gather         S - c(i + 1) elements sent, S - c(i) received, in P - 1 messages
//   add up         the same way, reversed
#pragma once

#include <span>

#include "collectives/algorithm.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/communicator.h"

namespace lockstep {

// Within a CollectiveCall of the caller. This rank's part is there, and then those of all.
void ring_gather(Communicator& comm, const UnevenChunks& parts);
// Every rank has numbers for all parts, and then the sum of all ranks' in its own. The other parts hold
// sums of some ranks.
void ring_add_up(Communicator& comm, const UnevenChunks& parts);
// What ring_gather() sends.
Traffic ring_gather_traffic(std::span<const Count> counts, int rank);
inline Traffic reversed(const Traffic& t) {
  return {t.received_messages, t.received_elements, t.sent_messages, t.sent_elements};
}

}  // namespace lockstep
