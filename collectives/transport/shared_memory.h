// What ranks in one address space can do: read and write each other's data directly.
#pragma once

#include <span>

#include "collectives/base/slice.h"
#include "collectives/transport/signature.h"

namespace lockstep {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // By rank: the data that each rank shows, and the memory that takes its result.
  struct Shown {
    std::span<const Slice> from, into;
  };
  // Shows `from` and `into`, which differ only in their address, to the other ranks, waits until
  // every rank has called it, and returns what all of them show. The answer is valid until this
  // rank's second call after this one.
  virtual Shown meet(const Call& call, Slice from, Slice into) = 0;
  // Shows a copy of `data`, of at most `copied_bytes`, so the caller may overwrite `data` at once.
  static constexpr Count copied_bytes = 4096;
  virtual std::span<const Slice> meet_with_copy(const Call& call, Slice data) = 0;
};

}  // namespace lockstep
