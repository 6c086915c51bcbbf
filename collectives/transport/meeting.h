// Where the ranks of a group meet and show each other their data.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// A rank that has come to round n + 1 has done with what was shown in round n: two rounds suffice.
class Meeting {
 public:
  explicit Meeting(std::size_t ranks) : seats_(ranks), shown_{Shown(ranks), Shown(ranks)} {}

  // A copy of `data` for the next round of `rank`; goes with the group, not with the rank.
  Slice copy_of(int rank, Slice data) {
    Seat& seat = seats_[rank];
    const std::uint64_t round = seat.round.load(std::memory_order_relaxed) + 1;
    const Slice copy{seat.copies[round % 2].data(), data.count, data.dtype, data.device};
    data.device->copy(copy, data);
    return copy;
  }
  // The number of the round that `rank` has come to.
  std::uint64_t come(int rank, const Signature& signature, Slice data) {
    Seat& seat = seats_[rank];
    const std::uint64_t round = seat.round.load(std::memory_order_relaxed) + 1;
    seat.signatures[round % 2] = signature;
    shown_[round % 2][rank] = data;
    seat.round.store(round);
    return round;
  }
  bool has_come(int rank, std::uint64_t round) const {
    return seats_[rank].round.load(std::memory_order_acquire) >= round;
  }
  const Signature& signature(int rank, std::uint64_t round) const {
    return seats_[rank].signatures[round % 2];
  }
  std::span<const Slice> shown(std::uint64_t round) const { return shown_[round % 2]; }

 private:
  using Shown = std::vector<Slice>;
  struct alignas(64) Seat {
    std::atomic<std::uint64_t> round = 0;
    std::array<Signature, 2> signatures;
    alignas(64) std::array<std::array<std::byte, SharedMemory::copied_bytes>, 2> copies;
  };
  std::vector<Seat> seats_;
  std::array<Shown, 2> shown_;
};

}  // namespace lockstep
