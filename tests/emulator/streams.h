// Streams and events. Work in a stream runs as late as possible, when somebody waits for it. With a
// seed, it runs in any order that streams and events allow. So work that lacks a necessary event
// reads wrong data.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

// A point in a stream, for example the end of the work when an event was recorded.
struct EmulatedSignal {
  EmulatedStream* stream = nullptr;  // null until a thread of the host has enqueued it
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};

struct EmulatedEvent {
  std::shared_ptr<EmulatedSignal> signal;  // of the last record
  bool timed = true;
  int device = 0;
};

struct EmulatedStream {
  struct Work {
    std::function<void()> run;
    std::shared_ptr<EmulatedSignal> waits_for;  // before it runs
    std::shared_ptr<const bool> cancelled;      // then it does not wait
    bool may_run() const { return !waits_for || waits_for->reached || (cancelled && *cancelled); }
  };
  std::deque<Work> queue;
  int device = 0;
  bool waits = false;  // while other streams run so that its front can
};

namespace emulator {

// Held by every call of the runtime, so the device does one thing at a time.
std::recursive_mutex& device_mutex();

// 0: as late as possible, the default. Otherwise all streams may make progress, in an order that
// depends on the seed. Initial value: the environment variable LOCKSTEP_EMULATOR_SEED.
void set_stream_seed(std::uint64_t seed);

EmulatedStream* make_stream(int device);
void end_stream(EmulatedStream* stream);
// A stream, or nullptr for the default one, whose work runs at once, after all other streams.
void enqueue(EmulatedStream* stream, std::function<void()> run,
             std::shared_ptr<EmulatedSignal> waits_for = nullptr,
             std::shared_ptr<const bool> cancelled = nullptr);
// Run the work until everything in the stream is done. False if that is not possible, because it
// waits for something that no thread of the host has enqueued yet.
bool finish(EmulatedStream* stream);
bool finish(const EmulatedSignal& signal);
bool finish_all();
// The same, but waits until it is possible. The calling thread holds the mutex once, and releases it
// for others while it waits.
template <typename Attempt>
void wait_until(std::unique_lock<std::recursive_mutex>& lock, Attempt attempt) {
  while (!attempt()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
  }
}
// Runs one piece of the stream's work.
enum class Step { done, nothing_to_do, stuck };
Step get_on(EmulatedStream* stream);

}  // namespace emulator
