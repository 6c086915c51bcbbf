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

// A message in the sender's memory. The receiver takes it, reads, and marks it done; a sender that
// gives up cancels. Where devices enqueue, the receiver reads after what the sender enqueued before
// it posted, and the sender goes on after what the receiver enqueued to read.
struct Message {
  enum State : std::uint32_t { posted, taken, done, cancelled };

  Signature signature;
  Slice data;
  Mark written, read;
  Bell* sender = nullptr;
  std::optional<Slice> put_in;  // the receiver's memory, where the sender has written to it
  std::atomic<std::uint32_t> state = posted;

  bool take() {
    std::uint32_t expected = posted;
    return state.compare_exchange_strong(expected, taken);
  }
  void finish() {
    state.store(done);
    sender->ring();
  }
  // Afterwards the receiver does not touch the data: waits for one that is reading.
  void cancel();
};

// Where the receiver of message `number` lets its sender put it.
struct ThreadsWindow {
  std::int64_t number;
  Slice memory;
  Mark free;
  std::atomic<bool> being_filled = false;
};

// From one rank to another. Receives are numbered when they are posted, so each gets the message of
// its number.
class Mailbox {
 public:
  void push(std::shared_ptr<Message> message);
  std::int64_t next_receive() { return receives_++; }
  std::int64_t receives() const { return receives_; }
  bool has(std::int64_t number) const { return pushed_.load(std::memory_order_acquire) > number; }
  // The message of that number, once.
  std::shared_ptr<Message> pop(std::int64_t number);

  // Windows are opened in the order of their numbers.
  void open(ThreadsWindow& window);
  // Afterwards nothing is written there: waits for a sender that is writing.
  void close(ThreadsWindow& window);
  // The sender's: puts `message`, its next, in the window for it, if there is one.
  void put(Message& message);

 private:
  ThreadsWindow* window_for(const Message& message);

  std::mutex mutex_;
  std::deque<std::shared_ptr<Message>> messages_;
  std::int64_t first_ = 0;     // number of messages_.front()
  std::int64_t receives_ = 0;  // of the receiving thread only
  std::atomic<std::int64_t> pushed_ = 0;
  std::deque<ThreadsWindow*> windows_;
  std::atomic<bool> has_windows_ = false;
};

}  // namespace lockstep
