#include "collectives/all_reduce/fold.h"

namespace lockstep {

void fold_in(Communicator& comm, Slice data, ReduceOp op) {
  const int q = participants(comm.size()), rank = comm.rank();
  if (rank >= q) comm.send(data, rank - q);
  if (rank + q < comm.size()) comm.recv_reduce(data, rank + q, op);
}

void fold_out(Communicator& comm, Slice data) {
  const int q = participants(comm.size()), rank = comm.rank();
  if (rank >= q) comm.recv(data, rank - q);
  if (rank + q < comm.size()) comm.send(data, rank + q);
}

Traffic folded_traffic(const Problem& x, int rank, const Traffic& taking_part) {
  const int q = participants(x.ranks);
  const Traffic fold{1, x.count, 1, x.count};
  if (rank >= q) return fold;
  return rank + q < x.ranks ? fold + taking_part : taking_part;
}

double fold_seconds(const Problem& x, const LinkModel& links) {
  if (power_of_two(x)) return 0;
  const double queue = x.bytes() * links.between.beta_s_per_byte;
  return 2 * links.between.seconds(x.bytes()) + queue;
}

}  // namespace lockstep
