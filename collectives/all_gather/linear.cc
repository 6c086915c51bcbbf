// Linear all-gather: every rank sends its chunk directly to every other rank.
//
//   rounds 1 (p - 1 messages leave each rank)   bytes sent per rank  (p - 1) n / p   scratch none
//
// One latency, if the network takes all messages at once.
#include "collectives/all_gather/all_gather.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);
  // Waits for receives first: a send may finish only when it has been received.
  std::vector<Request> messages;
  for (int distance = 1; distance < p; ++distance)
    messages.push_back(comm.irecv(chunk[rank - distance], (rank - distance + p) % p));
  for (int distance = 1; distance < p; ++distance)
    messages.push_back(comm.isend(chunk[rank], (rank + distance) % p));
  for (const Request& message : messages) message->wait();
}

}  // namespace

AllGatherAlgorithm all_gather_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count own = Parts(x.count, x.ranks)[rank];
                return Traffic{.sent_messages = x.ranks - 1,
                               .sent_elements = (x.ranks - 1) * own,
                               .received_messages = x.ranks - 1,
                               .received_elements = x.count - own};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks > 1 ? links.between.alpha_s : 0) +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "a + n (p-1)/p b",
          .exact = equal_chunks,
          .is_baseline = true};
}

}  // namespace lockstep
