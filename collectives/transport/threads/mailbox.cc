#include "collectives/transport/threads/mailbox.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <thread>

namespace lockstep {
namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout = nullptr) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG,
                 value, timeout, nullptr, 0);
}

}  // namespace

void Bell::ring() {
  // Sequentially consistent, like sleep(): either the sleeper sees the new count or we see the
  // sleeper.
  count_.fetch_add(1);
  if (sleepers_.load() > 0) futex(count_, FUTEX_WAKE, 1);
}

void Bell::sleep(std::uint32_t count, double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec timeout{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  sleepers_.fetch_add(1);
  if (count_.load() == count) futex(count_, FUTEX_WAIT, count, &timeout);
  sleepers_.fetch_sub(1);
}

void Message::cancel() {
  std::uint32_t expected = posted;
  if (state.compare_exchange_strong(expected, cancelled)) return;
  while (state.load() == taken) std::this_thread::yield();
}

void Mailbox::push(std::shared_ptr<Message> message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  pushed_.fetch_add(1, std::memory_order_release);
}

void Mailbox::open(ThreadsWindow& window) {
  const std::lock_guard lock(mutex_);
  windows_.push_back(&window);
  has_windows_.store(true, std::memory_order_relaxed);
}

void Mailbox::close(ThreadsWindow& window) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(windows_, &window);
    has_windows_.store(!windows_.empty(), std::memory_order_relaxed);
  }
  while (window.being_filled.load()) std::this_thread::yield();
}

ThreadsWindow* Mailbox::window_for(const Message& message) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = pushed_.load(std::memory_order_relaxed);
  while (!windows_.empty() && windows_.front()->number < number) windows_.pop_front();
  if (windows_.empty() || windows_.front()->number > number) return nullptr;
  ThreadsWindow* const window = windows_.front();
  if (window->memory.bytes() != message.data.bytes()) return nullptr;
  windows_.pop_front();
  window->being_filled.store(true);
  return window;
}

void Mailbox::put(Message& message) {
  // A window that opens at this moment may be missed.
  if (!has_windows_.load(std::memory_order_relaxed)) return;
  ThreadsWindow* const window = window_for(message);
  if (!window) return;
  const std::unique_ptr<ThreadsWindow, void (*)(ThreadsWindow*)> filled(
      window, [](ThreadsWindow* w) { w->being_filled.store(false); });
  window->free.stream_wait();
  window->memory.device->copy(window->memory, message.data);
  message.written = record_on(message.data.device);
  message.put_in = window->memory;
  message.state.store(Message::done);
}

std::shared_ptr<Message> Mailbox::pop(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  auto message = std::move(messages_[static_cast<std::size_t>(number - first_)]);
  while (!messages_.empty() && !messages_.front()) {
    messages_.pop_front();
    ++first_;
  }
  return message;
}

}  // namespace lockstep
