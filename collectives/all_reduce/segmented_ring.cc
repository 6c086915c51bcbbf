// Segmented ring: the ring with each chunk cut into segments. A rank forwards each segment as soon
// as it arrives, so it receives one segment while it combines and sends the previous one.
//
//   rounds               2 (p - 1), overlapping
//   bytes sent per rank  2 n (p - 1) / p
//   scratch              none with shared memory
//   in flight            at most 128 sends and 129 windows, whatever the size
//
// With shared memory, each rank writes its results directly into its neighbour's buffer.
//
// Hides latency and arithmetic behind the link's time if chunks are long. K = 2 (p - 1) rounds of
// S segments of s bytes keep a rank's egress busy all the time: K S s b + a. An exception is a
// latency so long that the segment L = min(S, 64) before the next one arrives late. Then
// K S - 1 = q L + r segments take (q + 1) (a + s b) + r s b.
#include <algorithm>
#include <deque>
#include <memory>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/rounds.h"
#include "collectives/sends_in_flight.h"

namespace lockstep {
namespace {

constexpr Count segment_bytes = Count{128} << 10;

int segments_of(Count chunk_bytes) {
  return static_cast<int>(std::max<Count>(1, (chunk_bytes + segment_bytes - 1) / segment_bytes));
}

// How many segments a rank sends ahead of those it receives. 16 would hide a latency of 2 us at
// 450 GB/s, but ranks that share cores with other programs pause for milliseconds and need more.
constexpr int lead = 64;
// A send finishes when the neighbour has received it. The neighbour may lag by `lead` segments
// before it blocks the sender.
constexpr int most_sends = 2 * lead;

void run_out_of_place(Communicator& comm, Slice out, Slice in, ReduceOp op) {
  const int p = comm.size(), rank = comm.rank();
  if (p == 1) return comm.copy(out, in);
  const Chunks result(out, p), own(in, p);
  // The same for every chunk, because each round forwards the segments of the previous one.
  const int segments = segments_of(own.largest() * element_bytes(in.dtype));
  // Messages go round by round, segment by segment. In the first p - 1 rounds they are reduced.
  const int growing = (p - 1) * segments, messages = 2 * growing;
  // The memory that a message is sent from. The message `segments` before it arrives there.
  const auto place = [&](const Chunks& chunk, int message) {
    return Chunks(chunk[rank - 1 - message / segments], segments)[message % segments];
  };

  SendsInFlight sends(comm, most_sends);
  int sent = 0;
  const auto send_up_to = [&](int end) {
    for (; sent < std::min(end, messages); ++sent)
      sends.send(place(sent < segments ? own : result, sent), comm.right());
  };
  // Opens a window for every message that the left neighbour may send from now on. Data that this
  // rank sent from the same memory have contributed to that message, so they have left.
  std::deque<std::unique_ptr<Window>> windows;
  int opened = growing;
  const auto open_windows = [&](int received) {
    for (; opened < std::min(received + most_sends + 1, messages); ++opened)
      windows.push_back(
          comm.open_window(place(result, opened + segments), comm.left(), opened - received));
  };

  for (int message = 0; message < messages; ++message) {
    open_windows(message);
    send_up_to(message + std::min(lead, segments));
    const Slice arriving = place(result, message + segments);
    if (message < growing) {
      if (out.data != in.data) comm.copy(arriving, place(own, message + segments));
      comm.recv_reduce(arriving, comm.left(), op);
      if (message >= growing - segments) comm.complete(arriving, op);
    } else {
      // Data sent from here in the first half must have left before the result overwrites them.
      sends.finish(message - growing + 1);
      comm.recv(arriving, comm.left());
      windows.pop_front();
    }
  }
  sends.finish_all();
}

void run(Communicator& comm, Slice data, ReduceOp op) { run_out_of_place(comm, data, data, op); }

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
  const Count segment = Parts(chunk, segments).largest();
  return ring_seconds(x.ranks, x.ranks_per_node, rounds * segments,
                      static_cast<double>(segment * x.element_bytes), links,
                      std::min(lead, segments));
}

bool is_exact(const Problem& x) {
  const Count chunk = x.count / x.ranks;
  return equal_chunks(x) && chunk % segments_of(chunk * x.element_bytes) == 0;
}

}  // namespace

AllReduceAlgorithm all_reduce_segmented_ring() {
  return {
      .name = "segmented_ring",
      .run = run,
      .run_out_of_place = run_out_of_place,
      .traffic = traffic,
      .seconds = seconds,
      .formula = "max(K S s b + a, (q+1) (a + s b) + r s b), K = 2(p-1), K S - 1 = q L + r",
      .exact = is_exact,
      .exact_on_nodes = [](const Problem& x) { return is_exact(x) && equal_chunks_of_nodes(x); },
      .windowed = [](const Problem& x,
                     int rank) { return x.count - Parts(x.count, x.ranks)[rank]; },
      .ranks_are_equal = true};
}

}  // namespace lockstep
