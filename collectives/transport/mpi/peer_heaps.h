// The heaps of the processes of one host, each seen by all.
#pragma once

#include <mpi.h>

#include <deque>
#include <optional>

#include "collectives/base/shared_heap.h"

namespace lockstep {

class PeerHeaps {
 public:
  // Gives this process a heap, for what host_device() allocates from now on; every process of the
  // host calls. Null, and everything as before, where the system does not let all of them see each
  // other's.
  static const PeerHeaps* open(MPI_Comm host);

  // This process's.
  bool holds(const std::byte* memory) const { return own_->holds(memory); }
  Count offset(const std::byte* memory) const { return own_->offset(memory); }
  // What lies there in another's; by its rank on the host.
  std::byte* at(int rank, Count offset) const { return views_[rank].at(offset); }

 private:
  PeerHeaps() = default;

  std::optional<SharedHeap> own_;
  std::deque<SharedHeap::View> views_;
};

}  // namespace lockstep
