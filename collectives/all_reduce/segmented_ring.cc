// Segmented ring: the ring with every chunk cut into segments, each passed on as soon as it has
// come, so that a rank receives one segment while it combines and sends the one before.
//
//   rounds 2 (p - 1), overlapping     bytes sent per rank  2 n (p - 1) / p      scratch none where
//   ranks share memory
//
// Where ranks share memory, each writes its results to the next one's, which need not come for
// them.
//
// Hides latency and arithmetic behind the link's time when chunks are long. With K = 2 (p - 1)
// rounds of S segments of s bytes a rank's way out is busy all the time, K S s b + a, unless a
// segment comes back for its next round later than its turn: then K (a + s b) + (S - 1) s b.
#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

constexpr Count segment_bytes = Count{128} << 10;

int segments_of(Count chunk_bytes) {
  return static_cast<int>(std::max<Count>(1, (chunk_bytes + segment_bytes - 1) / segment_bytes));
}

void run_apart(Communicator& comm, Slice out, Slice in, ReduceOp op) {
  const int p = comm.size(), rank = comm.rank();
  if (p == 1) return comm.copy(out, in);
  const Chunks result(out, p), own(in, p);
  // The same number for every chunk, because a round passes each segment of the one before.
  const int segments = segments_of(own.largest() * element_bytes(in.dtype));
  const auto segment = [&](const Chunks& chunk, int which, int i) {
    return Chunks(chunk[which], segments)[i];
  };

  // They may come at any time: what is sent from their places goes into them, so it is gone then.
  std::vector<std::unique_ptr<Window>> windows;
  const int rounds = 2 * (p - 1);
  for (int message = (p - 1) * segments; message < rounds * segments; ++message)
    windows.push_back(comm.open_window(
        segment(result, rank - 2 - message / segments, message % segments), comm.left(), message));

  std::vector<Request> sent;  // round by round, segment by segment
  for (int i = 0; i < segments; ++i)
    sent.push_back(comm.isend(segment(own, rank - 1, i), comm.right()));
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < segments; ++i) {
      const Slice arriving = segment(result, rank - 2 - round, i);
      const bool grows = round < p - 1;
      if (grows) {
        if (out.data != in.data) comm.copy(arriving, segment(own, rank - 2 - round, i));
        comm.recv_reduce(arriving, comm.left(), op);
        if (round == p - 2) comm.complete(arriving, op);
      } else {
        // What was sent from here in the first half must be gone before the result replaces it.
        sent[static_cast<std::size_t>((round - (p - 1)) * segments + i)]->wait();
        comm.recv(arriving, comm.left());
      }
      if (round + 1 < rounds) sent.push_back(comm.isend(arriving, comm.right()));
    }
  }
  for (const Request& send : sent) send->wait();
}

void run(Communicator& comm, Slice data, ReduceOp op) { run_apart(comm, data, data, op); }

Traffic traffic(const Problem& x, int rank) {
  const Parts chunk(x.count, x.ranks);
  const Count messages = 2 * (x.ranks - 1) * segments_of(chunk.largest() * x.element_bytes);
  return {.sent_messages = messages,
          .sent_elements = 2 * x.count - chunk[rank] - chunk[rank + 1],
          .received_messages = messages,
          .received_elements = 2 * x.count - chunk[rank - 1] - chunk[rank]};
}

double seconds(const Problem& x, const LinkModel& links) {
  if (x.ranks == 1) return 0;
  const Count chunk = Parts(x.count, x.ranks).largest();
  const int segments = segments_of(chunk * x.element_bytes), rounds = 2 * (x.ranks - 1);
  const double segment_s = static_cast<double>(Parts(chunk, segments).largest() * x.element_bytes) *
                           links.between.beta_s_per_byte;
  const double alpha_s = links.between.alpha_s;
  return std::max(rounds * segments * segment_s + alpha_s,
                  rounds * (alpha_s + segment_s) + (segments - 1) * segment_s);
}

}  // namespace

AllReduceAlgorithm all_reduce_segmented_ring() {
  return {.name = "segmented_ring",
          .run = run,
          .run_apart = run_apart,
          .traffic = traffic,
          .seconds = seconds,
          .formula = "max(K S s b + a, K (a + s b) + (S-1) s b), K = 2(p-1)",
          .exact = [](const Problem& x) {
            const Count chunk = x.count / x.ranks;
            return equal_chunks(x) && chunk % segments_of(chunk * x.element_bytes) == 0;
          }};
}

}  // namespace lockstep
