// Messages between threads: a mailbox for each ordered pair of ranks, and the bell that wakes a
// sleeping rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// Wakes one rank. ring() costs one addition while nobody sleeps.
class alignas(64) Bell {
 public:
  void ring();
  std::uint32_t count() const { return count_.load(); }
  // Sleeps until the bell has rung since `count` was read, at most `seconds`.
  void sleep(std::uint32_t count, double seconds);

 private:
  std::atomic<std::uint32_t> count_ = 0;
  std::atomic<std::uint32_t> sleepers_ = 0;
};

// A message in the sender's memory. The receiver takes it, reads it and sets it to done; a sender
// that gives up cancels it. On devices that enqueue, the receiver's stream first waits for the
// event `written`, and the sender's stream then waits for `read`.
struct Message {
  enum State : std::uint32_t { posted, taken, done, cancelled };

  Signature signature;
  Slice data;
  DeviceEvent written, read;
  Bell* sender = nullptr;
  std::optional<Slice> put_in;  // the receiver's memory, if the sender has written there
  std::atomic<std::uint32_t> state = posted;

  bool take() {
    std::uint32_t expected = posted;
    return state.compare_exchange_strong(expected, taken);
  }
  void finish() {
    state.store(done);
    sender->ring();
  }
  // Afterwards the receiver does not touch the data. Waits if the receiver is reading them.
  void cancel();
};

// Memory into which the sender may write message `number`.
struct ThreadsWindow {
  std::int64_t number;
  Slice memory;
  DeviceEvent free;
  std::atomic<bool> being_filled = false;
};

// From one rank to another. A receive gets its number when it is posted, and takes the message of
// that number.
class Mailbox {
 public:
  void push(std::shared_ptr<Message> message);
  std::int64_t next_receive() { return receives_++; }
  std::int64_t receives() const { return receives_; }
  bool has(std::int64_t number) const { return pushed_.load(std::memory_order_acquire) > number; }
  // The message of that number. Call once per message.
  std::shared_ptr<Message> pop(std::int64_t number);

  // Windows are opened in the order of their numbers.
  void open(ThreadsWindow& window);
  // Afterwards nobody writes there. Waits for a sender that is writing.
  void close(ThreadsWindow& window);
  // For the sender: writes `message`, its next one, into its window, if one is open.
  void put(Message& message);

 private:
  ThreadsWindow* window_for(const Message& message);

  std::mutex mutex_;
  std::deque<std::shared_ptr<Message>> messages_;
  std::int64_t first_ = 0;     // number of messages_.front()
  std::int64_t receives_ = 0;  // used by the receiving thread only
  std::atomic<std::int64_t> pushed_ = 0;
  std::deque<ThreadsWindow*> windows_;
  std::atomic<bool> has_windows_ = false;
};

}  // namespace lockstep
