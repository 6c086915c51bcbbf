// Where a rank shows the other ranks of its host, round by round, which memory of its heap they may
// read and write.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/transport/shared_memory.h"

namespace lockstep {

// The showcase of one rank; lies in memory shared by the ranks of a host, and is valid when zeroed.
// A rank that has come to round n + 1 no longer uses what was shown in round n, so two shelves
// suffice.
class Showcase {
 public:
  struct Shown {
    Signature signature;  // of the operation in which it is shown
    Count from, into;     // offsets in the rank's heap; not used if it shows the copy
  };

  // For the owner, before it shows round `round`.
  std::byte* copy(std::uint64_t round) { return shelf(round).copy.data(); }
  void show(std::uint64_t round, const Shown& shown) {
    shelf(round).shown = shown;
    shelf(round).round.store(round);
  }
  // For the others.
  bool shows(std::uint64_t round) const {
    return shelf(round).round.load(std::memory_order_acquire) >= round;
  }
  const Shown& shown(std::uint64_t round) const { return shelf(round).shown; }

  // For the owner: sleeps until it is woken, at most `seconds`. The others wake it after they have
  // shown something. `ready()`: whether it need not sleep.
  template <typename Ready>
  void sleep(double seconds, Ready ready) {
    // Sequentially consistent, like wake(): either the owner sees what is shown or the other rank
    // sees that the owner is asleep.
    asleep_.store(1);
    if (!ready()) sleep_while_asleep(seconds);
    asleep_.store(0);
  }
  void wake() {
    if (asleep_.load() != 0 && asleep_.exchange(0) != 0) wake_owner();
  }

 private:
  void sleep_while_asleep(double seconds);
  void wake_owner();

  // Cache lines are fetched in pairs.
  static constexpr std::size_t lines = 128;

  struct alignas(lines) Shelf {
    std::atomic<std::uint64_t> round;
    Shown shown;
    alignas(lines) std::array<std::byte, SharedMemory::copied_bytes> copy;
  };

  Shelf& shelf(std::uint64_t round) { return shelves_[round % shelves_.size()]; }
  const Shelf& shelf(std::uint64_t round) const { return shelves_[round % shelves_.size()]; }

  std::array<Shelf, 2> shelves_;
  alignas(lines) std::atomic<std::uint32_t> asleep_;  // 1 from before it looks for the last time
};

}  // namespace lockstep
