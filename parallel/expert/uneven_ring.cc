#include "parallel/expert/uneven_ring.h"

#include <numeric>

namespace lockstep {

void ring_gather(Communicator& comm, const UnevenChunks& parts) {
  const int p = comm.size(), rank = comm.rank();
  for (int step = 0; step < p - 1; ++step)
    comm.send_recv(parts[(rank - step + p) % p], comm.right(), parts[(rank - 1 - step + p) % p],
                   comm.left());
}

void ring_add_up(Communicator& comm, const UnevenChunks& parts) {
  const int p = comm.size(), rank = comm.rank();
  for (int step = p - 2; step >= 0; --step)
    comm.send_recv_reduce(parts[(rank - 1 - step + p) % p], comm.left(),
                          parts[(rank - step + p) % p], comm.right(), ReduceOp::sum);
}

Traffic ring_gather_traffic(std::span<const Count> counts, int rank) {
  const Count all = std::reduce(counts.begin(), counts.end()), messages = std::ssize(counts) - 1;
  const auto without = [&](std::size_t i) { return all - counts[i % counts.size()]; };
  const auto here = static_cast<std::size_t>(rank);
  return {messages, without(here + 1), messages, without(here)};
}

}  // namespace lockstep
