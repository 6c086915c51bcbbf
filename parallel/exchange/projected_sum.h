// GaLore's matrices travel as their projections, which are all that its steps use of them. Projecting is
// linear, and all ranks have the same projectors, so the sum of the projections is that of the sum:
//
//   R = P^T G  or  G Q^T  or  P^T G Q^T, summed     result = P R  or  R Q  or  P R Q
//
// What lies outside the subspace is gone, and the gradient's norm is that of the projections. All other
// parameters travel whole. Before subspaces are chosen anew, gradients travel whole: see WholeSteps of
// bucket_sums.h. Zhao et al., "GaLore", 2024.
#pragma once

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

std::unique_ptr<CompressedSum> make_projected_sum(const ProjectionSettings& projection, DType dtype,
                                                  const std::vector<ExchangedBucket>& buckets,
                                                  Communicator& comm, Device& device);
Traffic projected_traffic(const ProjectionSettings& projection, DType dtype,
                          const ExchangedBucket& bucket, int ranks, int rank);
// The projections of a bucket, and the rest of it.
Count projected_memory_bytes(const ProjectionSettings& projection, DType dtype,
                             const std::vector<ExchangedBucket>& buckets);

}  // namespace lockstep
