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
  // Most ranks wait for few peers, so memory is taken for neighbouring peers together, when needed.
  static constexpr int block_peers = 64;
  using Block = std::array<Seconds, block_peers>;
  using Table = std::vector<std::atomic<Block*>>;

  Seconds& of(int peer) {
    const Table* const table = table_.load(std::memory_order_acquire);
    Block* const block =
        table ? (*table)[static_cast<std::size_t>(peer / block_peers)].load() : nullptr;
    return (block ? *block : added(peer))[static_cast<std::size_t>(peer % block_peers)];
  }
  Block& added(int peer);

  int ranks_;
  std::mutex mutex_;
  std::atomic<Table*> table_ = nullptr;
  Seconds sum_ = 0, late_ = 0;
  std::atomic<WaitTimes*> account_ = this;
};

}  // namespace lockstep
