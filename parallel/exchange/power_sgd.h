// PowerSGD: a matrix M [m, q] of gradients as a product of two narrow ones, by one step of power
// iteration from the last step's result. Linear in M but for the orthonormal basis of P, which all ranks
// compute from the same sum, so W ranks do what one rank does with the sum of their gradients:
//
//   M = gradient + kept     P = M Q, summed     P = orthonormal(P)     Q = M^T P, summed
//   result = P Q^T          kept = M - result / W
//
// Vectors, and matrices for which (m + q) R is no less than half of m q, are summed as they are.
#pragma once

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

std::unique_ptr<CompressedSum> make_power_sgd(Count rank, DType dtype,
                                              const std::vector<ExchangedBucket>& buckets,
                                              Communicator& comm, Device& device);
Traffic power_sgd_traffic(Count matrix_rank, DType dtype, const ExchangedBucket& bucket, int ranks,
                          int rank);
Count power_sgd_scratch_bytes(Count matrix_rank, DType dtype, const ExchangedBucket& bucket,
                              int ranks, int rank);
ExchangeMemory power_sgd_memory(Count matrix_rank, DType dtype,
                                const std::vector<ExchangedBucket>& buckets);

}  // namespace lockstep
