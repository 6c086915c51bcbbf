// Streams and events. What is put into a stream runs when somebody waits for it, and no sooner than
// it must; or, from a seed, in any order that streams and events allow. So work that needed an
// event, but has none, meets memory that is not as it should be.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

// A place in a stream, such as the end of what was there when an event was recorded.
struct EmulatedMark {
  EmulatedStream* stream = nullptr;  // null while no thread of the host has put it into one
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};

struct EmulatedEvent {
  std::shared_ptr<EmulatedMark> mark;  // of the last record
  bool timed = true;
  int device = 0;
};

struct EmulatedStream {
  struct Work {
    std::function<void()> run;
    std::shared_ptr<EmulatedMark> waits_for;  // before it runs
    std::shared_ptr<const bool> cancelled;    // then it waits for nothing
    bool may_run() const { return !waits_for || waits_for->reached || (cancelled && *cancelled); }
  };
  std::deque<Work> queue;
  int device = 0;
  bool waits = false;  // while others get on, so that its front may run
};

namespace emulator {

// Held by every call of the runtime; so one thing at a time happens on the device.
std::recursive_mutex& device_mutex();

// 0: as late as possible, the default. Else streams that nobody waits for get on, too, in an order
// that follows from the seed. The environment's LOCKSTEP_EMULATOR_SEED is the first value.
void set_stream_seed(std::uint64_t seed);

EmulatedStream* make_stream(int device);
void end_stream(EmulatedStream* stream);
// A stream, or nullptr for the default one, which runs when everything else has, at once.
void enqueue(EmulatedStream* stream, std::function<void()> run,
             std::shared_ptr<EmulatedMark> waits_for = nullptr,
             std::shared_ptr<const bool> cancelled = nullptr);
// Run what must have run when all that is in the stream has. False if that cannot be, because
// something is waited for that no thread of the host has enqueued yet.
bool finish(EmulatedStream* stream);
bool finish(const EmulatedMark& mark);
bool finish_all();
// The same, and the calling thread, which holds the mutex once, lets others have it until it can
// be.
template <typename Attempt>
void wait_until(std::unique_lock<std::recursive_mutex>& lock, Attempt attempt) {
  while (!attempt()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
  }
}
// Lets the stream get on by one piece of work.
enum class Step { done, nothing_to_do, stuck };
Step get_on(EmulatedStream* stream);

}  // namespace emulator
