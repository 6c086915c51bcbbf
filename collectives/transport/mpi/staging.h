// Places in shared memory through which ranks of one host pass data that are too long for a
// message's packet: the sender copies them there and is done, the receiver uses them there. A few
// places are used again and again, so they stay in the caches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/base/slice.h"

namespace lockstep {

// One rank's.
class Staging {
 public:
  static constexpr Count place_bytes = Count{128} << 10;
  static constexpr int places = 8;
  static constexpr int none = -1;

  // Frees all places: before the first use, of memory that may hold anything.
  void clear() {
    for (auto& taken : taken_) taken.store(0);
  }
  // A free place, which is then taken; or none. For the thread of the owning rank.
  int take() {
    for (int place = 0; place < places; ++place) {
      if (taken_[place].load(std::memory_order_acquire) != 0) continue;
      taken_[place].store(1, std::memory_order_relaxed);
      return place;
    }
    return none;
  }
  // The owner has filled it; the receiver looks at it once the message that names it has come.
  // Where both are threads of one process, C++ knows nothing of the order that MPI gives them.
  void show(int place) { taken_[place].store(1, std::memory_order_release); }
  std::byte* shown(int place) {
    taken_[place].load(std::memory_order_acquire);
    return data_[place].data();
  }
  // The receiver is done with it.
  void give_back(int place) { taken_[place].store(0, std::memory_order_release); }
  std::byte* data(int place) { return data_[place].data(); }

 private:
  std::array<std::atomic<std::uint32_t>, places> taken_;
  alignas(4096) std::array<std::array<std::byte, place_bytes>, places> data_;
};

}  // namespace lockstep
