// Ring reduce-scatter, then gather: every rank combines one chunk.
//
//   rounds               p - 1 + ceil(lg p)
//   bytes sent per rank  n (p - 1) / p, plus those of the gather
//   scratch              n
//
// For large data: about 2 n b, compared with n b lg p for a tree. Rabenseifner, 2004.
#include "collectives/gather/gather.h"
#include "collectives/reduce/reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {

ReduceAlgorithm reduce_scatter_gather() {
  return {.name = "scatter_gather",
          .run =
              [](Communicator& comm, Slice data, ReduceOp op, int root) {
                ring_reduce_scatter(comm, data, op, whole_ring(comm));
                binomial_gather(comm, data, root);
              },
          .traffic =
              [](const Problem& x, int rank) {
                return ring_reduce_scatter_traffic(x.count, x.ranks, rank) +
                       binomial_gather_traffic(x, rank);
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                const double chunk = x.chunk_bytes(x.ranks);
                return (x.ranks - 1) * links.between.seconds(chunk) +
                       ceil_log2(x.ranks) * links.between.alpha_s +
                       (x.ranks - 1) * chunk * links.between.beta_s_per_byte;
              },
          .formula = "(p-1 + lg p) a + 2 n (p-1)/p b",
          .exact = equal_chunks_of_power_of_two};
}

}  // namespace lockstep
