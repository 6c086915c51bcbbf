// Linear all-to-all: every rank sends all its messages at once.
//
//   rounds 1 (p - 1 messages leave each rank)   bytes sent per rank  its row of the matrix, without
//                                               its own                          scratch none
//
// One latency, if the network takes all messages at once. The busiest rank decides the time.
#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice out, Slice in, RankCounts counts) {
  const int p = comm.size(), rank = comm.rank();
  const UnevenChunks leaving(in, counts.in), arriving(out, counts.out);
  // Waits for receives first: a send may finish only when it has been received.
  std::vector<Request> messages;
  for (int distance = 1; distance < p; ++distance) {
    const int from = (rank - distance + p) % p;
    messages.push_back(comm.irecv(arriving[from], from));
  }
  for (int distance = 1; distance < p; ++distance) {
    const int to = (rank + distance) % p;
    messages.push_back(comm.isend(leaving[to], to));
  }
  comm.copy(arriving[rank], leaving[rank]);
  for (const Request& message : messages) message->wait();
}

}  // namespace

AllToAllVAlgorithm all_to_all_v_linear() {
  return {.name = "linear",
          .run = run,
          .traffic = all_to_all_v_traffic,
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                const double bytes = static_cast<double>(busiest(x).elements * x.element_bytes);
                return x.ranks > 1 ? links.between.seconds(bytes) : 0;
              },
          .formula = "a + the busiest rank's bytes b",
          .exact = stays_in_step,
          .is_baseline = true};
}

}  // namespace lockstep
