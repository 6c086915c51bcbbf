// For ranks that read and write each other's data directly: threads of one process, or processes
// that map each other's memory.
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
  // every rank has called it, and returns the slices of all ranks. They are valid until this rank
  // calls withdraw().
  virtual Shown rendezvous(const Call& call, Slice from, Slice into) = 0;
  // Ends what rendezvous() has begun with the same slices. Waits until every rank has called it:
  // then nobody uses `from` any more, and `into` holds what the ranks have written.
  virtual void withdraw(const Call& call, Slice from, Slice into) = 0;
  // Shows a copy of `data`, of at most `copied_bytes`. The caller may overwrite `data` at once. The
  // slices are valid until this rank's next call.
  static constexpr Count copied_bytes = 4096;
  virtual std::span<const Slice> rendezvous_with_copy(const Call& call, Slice data) = 0;
};

}  // namespace lockstep
