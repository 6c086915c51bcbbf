// Bidirectional ring: one half of the data goes round to the right and, at the same time, the other
// half to the left.
//
//   rounds 2 (p - 1)    bytes sent per rank  2 n (p - 1) / p      scratch none with shared memory
//
// Twice as fast as one ring if each neighbour has its own link, as between GPUs. If a rank has one
// egress for all neighbours, both halves queue there and there is no gain.
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

// The left half uses the same ring with ranks counted backwards.
int mirrored(int rank, int p) { return p - 1 - rank; }

void run(Communicator& comm, Slice data, ReduceOp op) {
  const int p = comm.size(), right = comm.right(), left = comm.left();
  const Chunks half(data, 2);
  const Chunks rightward(half[0], p), leftward(half[1], p);
  const int r = comm.rank(), l = mirrored(comm.rank(), p);

  for (int step = 0; step < p - 1; ++step) {
    const Request sent_right = comm.isend(rightward[r - 1 - step], right);
    const Request sent_left = comm.isend(leftward[l - 1 - step], left);
    comm.recv_reduce(rightward[r - 2 - step], left, op);
    comm.recv_reduce(leftward[l - 2 - step], right, op);
    sent_right->wait();
    sent_left->wait();
  }
  comm.complete(rightward[r], op);
  comm.complete(leftward[l], op);
  for (int step = 0; step < p - 1; ++step) {
    const Request sent_right = comm.isend(rightward[r - step], right);
    const Request sent_left = comm.isend(leftward[l - step], left);
    comm.recv(rightward[r - 1 - step], left);
    comm.recv(leftward[l - 1 - step], right);
    sent_right->wait();
    sent_left->wait();
  }
}

Traffic one_direction(Count count, int p, int rank) {
  const Parts chunk(count, p);
  return {.sent_messages = 2 * (p - 1),
          .sent_elements = 2 * count - chunk[rank] - chunk[rank + 1],
          .received_messages = 2 * (p - 1),
          .received_elements = 2 * count - chunk[rank - 1] - chunk[rank]};
}

}  // namespace

AllReduceAlgorithm all_reduce_bidirectional_ring() {
  return {.name = "bidirectional_ring",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Parts half(x.count, 2);
                return one_direction(half[0], x.ranks, rank) +
                       one_direction(half[1], x.ranks, mirrored(rank, x.ranks));
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                const Parts half(x.count, 2);
                const Count largest =
                    Parts(half[0], x.ranks).largest() + Parts(half[1], x.ranks).largest();
                return 2 * (x.ranks - 1) *
                       links.between.seconds(static_cast<double>(largest * x.element_bytes));
              },
          .formula = "2(p-1) (a + n/p b)",
          .exact = [](const Problem& x) { return x.count % (2 * x.ranks) == 0; }};
}

}  // namespace lockstep
