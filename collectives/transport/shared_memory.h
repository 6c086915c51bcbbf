// For ranks in one address space: they read and write each other's data directly.
#pragma once

#include <span>

#include "collectives/base/slice.h"
#include "collectives/transport/signature.h"

namespace lockstep {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // By rank: the data of each rank, and the memory for its result.
  struct Shown {
    std::span<const Slice> from, into;
  };
  // Shows `from` and `into`, which differ only in their address, to the other ranks. Waits until
  // every rank has called it, and returns the slices of all ranks. They are valid until this rank's
  // second next call.
  virtual Shown rendezvous(const Call& call, Slice from, Slice into) = 0;
  // Shows a copy of `data`, of at most `copied_bytes`. The caller may overwrite `data` at once.
  static constexpr Count copied_bytes = 4096;
  virtual std::span<const Slice> rendezvous_with_copy(const Call& call, Slice data) = 0;
};

}  // namespace lockstep
