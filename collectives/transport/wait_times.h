// How long one rank has waited for each other rank.
//
// Transports count a wait in the loop that waits, with times that they read while the awaited message
// is not there, so counting delays no message. A wait that ends before the loop has read the clock
// twice, after a few microseconds, is not counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep {

// Ranks are those of the world. Thread-safe: the threads of a rank share one.
class WaitTimes {
 public:
  struct Waited {
    int peer = 0;
    double seconds = 0;
  };

  explicit WaitTimes(int ranks) : ranks_(ranks) {}
  ~WaitTimes();
  WaitTimes(const WaitTimes&) = delete;

  void add(int peer, double seconds) {
    if (seconds <= 0) return;
    WaitTimes* const account = account_.load(std::memory_order_relaxed);
    if (!account) return;
    account->of(peer).fetch_add(seconds, std::memory_order_relaxed);
    account->sum_.fetch_add(seconds, std::memory_order_relaxed);
  }
  // The rank did not run although it had something to look for: its process was stopped, or its
  // core taken away.
  void add_late(double seconds) { late_.fetch_add(seconds, std::memory_order_relaxed); }

  // From now on waits are added to `account` instead, which must live until this is called again;
  // null: to none. Late time still counts here.
  void add_to(WaitTimes* account) { account_.store(account, std::memory_order_relaxed); }

  // The peers for which it has waited, in order.
  std::vector<Waited> by_peer() const;
  double seconds() const { return sum_.load(std::memory_order_relaxed); }
  int ranks() const { return ranks_; }
  double late_seconds() const { return late_.load(std::memory_order_relaxed); }

 private:
  using Seconds = std::atomic<double>;
  struct Place {
    std::atomic<int> holder = 0;  // peer + 1; 0: free
    Seconds seconds = 0;
  };
  // Most ranks wait for few peers. The first of them have their places here; for others memory is
  // taken for neighbouring peers together, when needed.
  static constexpr std::size_t first_peers = 14;
  static constexpr int block_peers = 64;
  using Block = std::array<Seconds, block_peers>;
  using Table = std::vector<std::atomic<Block*>>;

  Seconds& of(int peer) {
    for (Place& place : first_) {
      int holder = place.holder.load(std::memory_order_relaxed);
      // Another thread of the rank may take the place first, even for the same peer.
      if (holder == 0 && place.holder.compare_exchange_strong(holder, peer + 1)) holder = peer + 1;
      if (holder == peer + 1) return place.seconds;
    }
    return of_later(peer);
  }
  Seconds& of_later(int peer);
  Block& added(std::size_t number);

  std::atomic<WaitTimes*> account_ = this;
  Seconds sum_ = 0, late_ = 0;
  std::array<Place, first_peers> first_{};
  std::atomic<Table*> table_ = nullptr;
  int ranks_;
  std::mutex mutex_;
};

}  // namespace lockstep
