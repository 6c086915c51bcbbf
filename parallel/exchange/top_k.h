// The largest gradients of each rank, with their places, gathered on all ranks and added up there.
#pragma once

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

std::unique_ptr<CompressedSum> make_top_k(double share, DType dtype,
                                          const std::vector<ExchangedBucket>& buckets,
                                          Communicator& comm, Device& device);
Traffic top_k_traffic(double share, DType dtype, Count count, int ranks);
ExchangeMemory top_k_memory(double share, DType dtype, const std::vector<ExchangedBucket>& buckets,
                            int ranks);

}  // namespace lockstep
