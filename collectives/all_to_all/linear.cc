// Linear all-to-all: every rank sends all its messages at once.
//
//   rounds 1 (p - 1 messages leave each rank)   bytes sent per rank  n (p - 1) / p    scratch none
//
// One latency, if the network takes all messages at once.
#include "collectives/all_to_all/all_to_all.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice out, Slice in) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks leaving(in, p), arriving(out, p);
  // Waits for receives first: a send may finish only when it has been received.
  std::vector<Request> messages;
  for (int distance = 1; distance < p; ++distance)
    messages.push_back(comm.irecv(arriving[rank - distance], (rank - distance + p) % p));
  for (int distance = 1; distance < p; ++distance)
    messages.push_back(comm.isend(leaving[rank + distance], (rank + distance) % p));
  comm.copy(arriving[rank], leaving[rank]);
  for (const Request& message : messages) message->wait();
}

}  // namespace

AllToAllAlgorithm all_to_all_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int) {
                const Count messages = x.ranks - 1, elements = messages * (x.count / x.ranks);
                return Traffic{messages, elements, messages, elements};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks > 1 ? links.between.alpha_s : 0) +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "a + n (p-1)/p b",
          .is_baseline = true};
}

}  // namespace lockstep
