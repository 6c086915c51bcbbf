// How ranks of one host transfer data that are too long for a packet. If the receiver has opened a
// window, the sender writes the data there. Data in a heap that the receiver maps are exposed: the
// receiver reads them in place and the sender waits until it is done. Other data go through places
// in shared memory: the sender copies them there and continues. A few places are reused constantly,
// so they stay in the caches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/base/slice.h"
#include "collectives/transport/mpi/windows.h"

namespace lockstep {

// The staging of one rank.
class Staging {
 public:
  static constexpr Count place_bytes = Count{128} << 10;
  static constexpr int places = 8;
  static constexpr int most_exposed = 64;
  static constexpr int none = -1;
  static constexpr int window = -2;  // the receiver's own memory

  // Frees all places of uninitialized memory, before the first use.
  void clear() {
    for (auto& state : states_) state.store(free);
    windows_.clear();
  }
  // Takes a free place; `none` if there is none. Called by the owner's thread, like expose().
  int take() { return first_free(0, places); }
  // The same for exposed data, which need no place because they stay where they are.
  int expose() { return first_free(places, places + most_exposed); }
  static bool is_exposed(int place) { return place >= places; }

  // The owner has filled it; the receiver reads it after the message that names it has arrived.
  // Needed if both are threads of one process: C++ does not know that MPI orders them.
  void show(int place) { states_[place].store(taken, std::memory_order_release); }
  void see(int place) const { states_[place].load(std::memory_order_acquire); }
  // The receiver is done. A place is then free; exposed data when the owner reclaims them.
  void give_back(int place) {
    states_[place].store(is_exposed(place) ? given_back : free, std::memory_order_release);
  }
  bool reclaim(int place) {
    if (states_[place].load(std::memory_order_acquire) != given_back) return false;
    states_[place].store(free, std::memory_order_relaxed);
    return true;
  }
  std::byte* data(int place) { return data_[place].data(); }
  // The windows that the owner has opened to senders.
  Windows& windows() { return windows_; }

 private:
  enum State : std::uint32_t { free, taken, given_back };

  int first_free(int begin, int end) {
    for (int place = begin; place < end; ++place) {
      if (states_[place].load(std::memory_order_acquire) != free) continue;
      states_[place].store(taken, std::memory_order_relaxed);
      return place;
    }
    return none;
  }

  std::array<std::atomic<std::uint32_t>, places + most_exposed> states_;
  Windows windows_;
  alignas(4096) std::array<std::array<std::byte, place_bytes>, places> data_;
};

}  // namespace lockstep
