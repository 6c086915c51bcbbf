// A rank's windows: memory into which senders may write certain messages directly.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "collectives/transport/transport.h"

namespace lockstep {

// The windows of one rank; lies in memory shared by the ranks of a host.
class Windows {
 public:
  // Identifies a message; both sides know it in advance.
  struct Key {
    std::int64_t from, number, bytes;

    bool operator==(const Key&) const = default;
  };

  void clear() {
    for (Entry& entry : entries_) entry.state.store(closed);
  }
  // For the owner. False if there is no room for another window.
  bool open(const Key& key, Count offset) {
    Entry& entry = entry_of(key.number);
    if (entry.state.load(std::memory_order_acquire) != closed) return false;
    entry.key = key;
    entry.offset = offset;
    entry.state.store(opened, std::memory_order_release);
    return true;
  }
  // For the owner. Afterwards nobody writes there. Waits for a sender that is writing, but not for
  // one that has died.
  void close(std::int64_t number) {
    Entry& entry = entry_of(number);
    std::uint32_t state = opened;
    if (entry.state.compare_exchange_strong(state, closed)) return;
    constexpr double patience_s = 1;
    const double start = steady_seconds();
    while (entry.state.load(std::memory_order_acquire) == taken &&
           steady_seconds() - start < patience_s)
      std::this_thread::yield();
    entry.state.store(closed);
  }
  // For a sender: the offset in the owner's heap at which to write that message, after which it
  // calls filled(). Empty if no window is open for the message.
  std::optional<Count> take(const Key& key) {
    Entry& entry = entry_of(key.number);
    std::uint32_t state = opened;
    if (entry.state.load(std::memory_order_relaxed) != opened ||
        !entry.state.compare_exchange_strong(state, taken))
      return std::nullopt;
    if (entry.key == key) return entry.offset;
    entry.state.store(opened, std::memory_order_release);
    return std::nullopt;
  }
  void filled(std::int64_t number) {
    entry_of(number).state.store(written, std::memory_order_release);
  }
  // For the owner, after the message has arrived: makes the written data visible.
  void see(std::int64_t number) const {
    entries_[index(number)].state.load(std::memory_order_acquire);
  }

 private:
  enum State : std::uint32_t { closed, opened, taken, written };

  struct alignas(64) Entry {
    std::atomic<std::uint32_t> state;
    Key key;
    Count offset;
  };
  static constexpr std::size_t entries = 512;

  static std::size_t index(std::int64_t number) {
    return static_cast<std::size_t>(number) % entries;
  }
  Entry& entry_of(std::int64_t number) { return entries_[index(number)]; }

  std::array<Entry, entries> entries_;
};

}  // namespace lockstep
