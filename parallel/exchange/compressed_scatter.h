// A reduce-scatter with fewer bytes: each rank sends every other rank its chunk, encoded, and adds up
// what it gets. For ranks that shard gradients.
//
//   int8, mxfp8   one hop among all P ranks; each number is rounded once, whatever P is
//   qgz:B         on N nodes of L ranks, two hops: within nodes each rank adds up the chunks of the N
//                 ranks that have its place in their nodes; between nodes it adds up its own
//
//                 messages per rank   bytes sent per rank, chunks of c numbers      e: see codec.h
//   one hop       P-1                 (P-1) e(c)
//   two hops      L-1 + N-1           (L-1) N e(c) within the node, (N-1) e(c) between nodes
//
// In all, both send (P-1) e(c), exactly so if all chunks are equal. But of one hop, (P-L) e(c) cross
// nodes, L times as much as of two. With steps s (codec.h) of a number on each rank and then of each
// node's sum, the sum is off by at most N (L s/2 + s/2): half a step for each rounding. A hop of one rank is
// left out, so that one node, or nodes of one rank, round once.
//
// Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023.
#pragma once

#include <span>

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

class CompressedScatter {
 public:
  virtual ~CompressedScatter() = default;
  // Chunk `comm.rank()` of `numbers` becomes its sum over the ranks of the communicator. Chunks are in
  // the order of the ranks and cover `numbers`; other chunks keep their numbers.
  virtual void run(Communicator& comm, Slice numbers, std::span<const Range> chunks) = 0;
};

// For a method that keeps nothing, and numbers of any floating type in the memory of `device`, for which
// chunks are at most those of `largest`. `comm` records its memory, and knows the nodes; every rank
// calls it. Throws like require_host().
std::unique_ptr<CompressedScatter> make_compressed_scatter(const ExchangeMethod& method,
                                                           DType dtype,
                                                           std::span<const Range> largest,
                                                           Communicator& comm, Device& device);
// The closed forms, in bytes. `ranks_per_node`: see Communicator; 0 counts as 1.
Traffic scatter_traffic(const ExchangeMethod& method, std::span<const Range> chunks, int rank,
                        int ranks_per_node);
Count scatter_memory_bytes(const ExchangeMethod& method, DType dtype,
                           std::span<const Range> largest, int rank, int ranks_per_node);

}  // namespace lockstep
