// An all-gather with fewer bytes: each rank encodes its chunk, ranks gather codes, and decode all of them,
// their own too. So every rank has the same bits, and the rank's own numbers are not changed where they
// are kept. For parameters that ranks shard (ZeRO++'s qwZ).
//
//   bytes sent per rank   (P-1) e(c), c numbers of the largest chunk      e: see codec.h
//   memory                P e(c); numbers of 16 bits also 4 c
//
// Shorter chunks are sent as long as the largest one. Blocks of a codec begin with each chunk, so what
// numbers become depends on how many ranks shard them.
//
// Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "models/parameters.h"

namespace lockstep {

class CompressedGather {
 public:
  virtual ~CompressedGather() = default;
  // Every chunk of `numbers` becomes the decoded one of its rank. Chunks are in the order of the ranks.
  // `algorithm` is one of all_gather.
  virtual void run(Communicator& comm, Slice numbers, std::span<const Range> chunks,
                   std::string_view algorithm) = 0;
};

// For a codec without a common scale, and numbers of any floating type in the memory of `device`, for
// which chunks are at most those of `largest`. `comm` records its memory. Throws Error (bad_input) if
// the device is a GPU: the processor encodes parameters.
std::unique_ptr<CompressedGather> make_compressed_gather(std::string_view codec, DType dtype,
                                                         std::span<const Range> largest,
                                                         Communicator& comm, Device& device);
// The closed forms, in bytes: of what is gathered, all ranks' codes, and of memory.
Count gathered_bytes(std::string_view codec, std::span<const Range> chunks);
Count gather_memory_bytes(std::string_view codec, DType dtype, std::span<const Range> largest);

}  // namespace lockstep
