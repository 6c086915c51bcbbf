// Pipelined chain: the ranks form a chain from the root. Each forwards every segment as soon as it
// arrives.
//
//   rounds p - 2 + segments     bytes sent per rank  n, the last 0     scratch none
//
// About n b for any number of ranks, if the data are long enough to fill the chain.
#include <algorithm>

#include "collectives/broadcast/broadcast.h"
#include "collectives/sends_in_flight.h"

namespace lockstep {
namespace {

constexpr Count segment_bytes = Count{128} << 10;
constexpr int most_sends = 128;  // unfinished at once

int segments_of(Count bytes) {
  return static_cast<int>(std::max<Count>(1, (bytes + segment_bytes - 1) / segment_bytes));
}

void run(Communicator& comm, Slice data, int root) {
  const int place = (comm.rank() - root + comm.size()) % comm.size();
  const bool first = place == 0, last = place == comm.size() - 1;
  const int segments = segments_of(data.bytes());
  const Chunks segment(data, segments);

  SendsInFlight sends(comm, most_sends);
  for (int i = 0; i < segments; ++i) {
    if (!first) comm.recv(segment[i], comm.left());
    if (!last) sends.send(segment[i], comm.right());
  }
  sends.finish_all();
}

Traffic traffic(const Problem& x, int rank) {
  const int segments = segments_of(x.count * x.element_bytes);
  const int place = (rank - x.root + x.ranks) % x.ranks;
  Traffic total;
  if (place > 0) total += {0, 0, segments, x.count};
  if (place < x.ranks - 1) total += {segments, x.count, 0, 0};
  return total;
}

}  // namespace

BroadcastAlgorithm broadcast_chain() {
  return {
      .name = "chain",
      .run = run,
      .traffic = traffic,
      .seconds =
          [](const Problem& x, const LinkModel& links) {
            if (x.ranks == 1) return 0.0;
            const int segments = segments_of(x.count * x.element_bytes);
            const double segment = x.chunk_bytes(segments);
            return (x.ranks - 1) * links.between.seconds(segment) +
                   (segments - 1) * segment * links.between.beta_s_per_byte;
          },
      .formula = "(p-1) (a + s b) + (S-1) s b",
      .exact =
          [](const Problem& x) { return x.count % segments_of(x.count * x.element_bytes) == 0; }};
}

}  // namespace lockstep
