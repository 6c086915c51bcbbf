// The shared heaps of the processes of one host. Every process maps all of them.
#pragma once

#include <mpi.h>

#include <deque>
#include <optional>

#include "collectives/base/shared_heap.h"

namespace lockstep {

class PeerHeaps {
 public:
  // Creates a heap for this process; host_device() allocates from it from now on. Every process of
  // the host calls it. Null, without any change, if the system does not let all of them map each
  // other's heaps.
  static PeerHeaps* open(MPI_Comm host);

  // Allocates from this process's heap. Null if that is full.
  std::byte* allocate(Count bytes) { return own_->allocate(bytes); }
  void release(std::byte* memory) { own_->release(memory); }
  bool holds(const std::byte* memory) const { return own_->holds(memory); }
  Count offset(const std::byte* memory) const { return own_->offset(memory); }
  // An address in another process's heap, by its rank on the host.
  std::byte* at(int rank, Count offset) const { return views_[rank].at(offset); }

 private:
  PeerHeaps() = default;

  std::optional<SharedHeap> own_;
  std::deque<SharedHeap::View> views_;
};

}  // namespace lockstep
