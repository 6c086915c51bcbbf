// A reduce-scatter with fewer bytes: each rank sends every other rank its chunk, encoded, and adds up
// what it gets. Each number is rounded once, whatever the number of ranks. For ranks that shard
// gradients; Wang et al., "ZeRO++", 2023, do it twice, within nodes and between them.
//
//   bytes sent per rank   the sum of e(chunk) over the other ranks      e: see codec.h
#pragma once

#include <span>

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

class CompressedScatter {
 public:
  virtual ~CompressedScatter() = default;
  // Chunk `comm.rank()` of `numbers` becomes its sum over the ranks. Chunks are in the order of the ranks
  // and cover `numbers`.
  virtual void run(Communicator& comm, Slice numbers, std::span<const Range> chunks) = 0;
};

// For a method that keeps nothing, and numbers of any floating type in the memory of `device`, for which
// chunks are at most those of `largest`. `comm` records its memory. Throws like require_host().
std::unique_ptr<CompressedScatter> make_compressed_scatter(const ExchangeMethod& method,
                                                           DType dtype,
                                                           std::span<const Range> largest,
                                                           Communicator& comm, Device& device);
// The closed forms, in bytes.
Traffic scatter_traffic(const ExchangeMethod& method, std::span<const Range> chunks, int rank);
Count scatter_memory_bytes(const ExchangeMethod& method, DType dtype,
                           std::span<const Range> largest, int rank);

}  // namespace lockstep
