// Where ranks of one host pass data that are too long for a message's packet. Into memory that the
// receiver has opened the sender puts them itself. Data in memory that the receiver sees, too, are
// lent: it uses them where they lie, and the sender waits until it gives them back. Others go
// through places in shared memory: the sender copies them there and is done. A few places are used
// again and again, so they stay in the caches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/base/slice.h"
#include "collectives/transport/mpi/windows.h"

namespace lockstep {

// One rank's.
class Staging {
 public:
  static constexpr Count place_bytes = Count{128} << 10;
  static constexpr int places = 8;
  static constexpr int loans = 64;
  static constexpr int none = -1;
  static constexpr int window = -2;  // the receiver's own memory

  // Frees all places: before the first use, of memory that may hold anything.
  void clear() {
    for (auto& state : states_) state.store(free);
    windows_.clear();
  }
  // A free place, which is then taken; or none. For the thread of the owning rank, as is lend().
  int take() { return first_free(0, places); }
  // The same for a loan. It is no place: the data lie elsewhere.
  int lend() { return first_free(places, places + loans); }
  static bool is_loan(int place) { return place >= places; }

  // The owner has filled it; the receiver looks at it once the message that names it has come.
  // Where both are threads of one process, C++ knows nothing of the order that MPI gives them.
  void show(int place) { states_[place].store(taken, std::memory_order_release); }
  void see(int place) const { states_[place].load(std::memory_order_acquire); }
  // The receiver is done with it. A place is free then; a loan when its owner has noticed.
  void give_back(int place) {
    states_[place].store(is_loan(place) ? given_back : free, std::memory_order_release);
  }
  bool take_back(int loan) {
    if (states_[loan].load(std::memory_order_acquire) != given_back) return false;
    states_[loan].store(free, std::memory_order_relaxed);
    return true;
  }
  std::byte* data(int place) { return data_[place].data(); }
  // What the owner has opened to its senders.
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

  std::array<std::atomic<std::uint32_t>, places + loans> states_;
  Windows windows_;
  alignas(4096) std::array<std::array<std::byte, place_bytes>, places> data_;
};

}  // namespace lockstep
