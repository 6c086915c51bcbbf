// Shared memory for ranks that are processes of one host: they map each other's heaps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/mpi/group.h"
#include "collectives/transport/shared_memory.h"

namespace lockstep {

class MpiSharedMemory final : public SharedMemory {
 public:
  // For a group whose ranks map each other's heaps.
  explicit MpiSharedMemory(MpiGroup& group);

  // Data outside the heap are shown as a copy in the heap; withdraw() copies their result back.
  Shown rendezvous(const Call& call, Slice from, Slice into) override;
  void withdraw(const Call& call, Slice from, Slice into) override;
  std::span<const Slice> rendezvous_with_copy(const Call& call, Slice data) override;

 private:
  struct Seen {
    std::vector<Slice> from, into;
  };

  const PeerHeaps& heaps() { return *group_.members().heaps(); }
  Showcase& showcase(int rank) { return *group_.members().showcase(rank); }
  // What this rank saw in the current round.
  Seen& seen() { return seen_[rounds_ % seen_.size()]; }
  // Begins the next round, in which this rank shows these offsets of its heap, and waits until all
  // ranks have begun it.
  void meet(const Call& call, Count from, Count into);
  void await(int other, const Call& call);
  // `data` if they lie in the heap; otherwise memory of the same size that does.
  Slice in_heap(Slice data, Memory& substitute);

  MpiGroup& group_;
  std::uint64_t rounds_ = 0;
  std::array<Seen, 2> seen_;
  Memory from_, into_;  // kept for reuse: page faults of fresh memory cost more than the copy
};

}  // namespace lockstep
