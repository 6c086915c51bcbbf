// Scatter, then ring all-gather: every rank forwards one chunk at a time.
//
//   rounds ceil(lg p) + p - 1   bytes sent by the root  2 n (p - 1) / p     scratch n
//
// For large data: about 2 n b, compared with n b lg p for a tree. Van de Geijn, 1994.
#include "collectives/all_gather/all_gather.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/scatter/scatter.h"

namespace lockstep {

BroadcastAlgorithm broadcast_scatter_all_gather() {
  return {.name = "scatter_all_gather",
          .run =
              [](Communicator& comm, Slice data, int root) {
                binomial_scatter(comm, data, root);
                ring_all_gather(comm, data, whole_ring(comm));
              },
          .traffic =
              [](const Problem& x, int rank) {
                return binomial_scatter_traffic(x, rank) +
                       ring_all_gather_traffic(x.count, x.ranks, rank);
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                const double chunk = x.chunk_bytes(x.ranks);
                return ceil_log2(x.ranks) * links.between.alpha_s +
                       (x.ranks - 1) * chunk * links.between.beta_s_per_byte +
                       (x.ranks - 1) * links.between.seconds(chunk);
              },
          .formula = "(lg p + p-1) a + 2 n (p-1)/p b",
          .exact = equal_chunks_of_power_of_two};
}

}  // namespace lockstep
