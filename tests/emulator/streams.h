// Streams and events. What is put into a stream runs when somebody waits for it, and no sooner than
// it must; or, from a seed, in any order that streams and events allow. So work that needed an
// event, but has none, meets memory that is not as it should be.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <mutex>

// The end of what was in a stream when an event was recorded.
struct EmulatedMark {
  EmulatedStream* stream = nullptr;
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};

struct EmulatedEvent {
  std::shared_ptr<EmulatedMark> mark;  // of the last record
  bool timed = true;
};

struct EmulatedStream {
  struct Work {
    std::function<void()> run;
    std::shared_ptr<EmulatedMark> waits_for;  // before it runs
  };
  std::deque<Work> queue;
};

namespace emulator {

// Held by every call of the runtime; so one thing at a time happens on the device.
std::recursive_mutex& device_mutex();

// 0: as late as possible, the default. Else streams that nobody waits for get on, too, in an order
// that follows from the seed. The environment's LOCKSTEP_EMULATOR_SEED is the first value.
void set_stream_seed(std::uint64_t seed);

EmulatedStream* make_stream();
void end_stream(EmulatedStream* stream);
// A stream, or nullptr for the default one, which runs when everything else has, at once.
void enqueue(EmulatedStream* stream, std::function<void()> run,
             std::shared_ptr<EmulatedMark> waits_for = nullptr);
// Runs what must have run when all that is in the stream has.
void finish(EmulatedStream* stream);
void finish(const EmulatedMark& mark);
void finish_all();
// Lets the stream get on by one piece of work; false if there was none.
bool get_on(EmulatedStream* stream);

}  // namespace emulator
