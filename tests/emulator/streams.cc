#include "tests/emulator/streams.h"

#include <cstdlib>
#include <vector>

#include "models/random.h"
#include "tests/emulator/memory.h"

namespace emulator {
namespace {

struct Streams {
  std::vector<EmulatedStream*> all;
  std::vector<std::unique_ptr<EmulatedStream>> ended;  // signals may still refer to them
  std::uint64_t seed = 0;
  std::int64_t draws = 0;

  Streams() {
    if (const char* const text = std::getenv("LOCKSTEP_EMULATOR_SEED"))
      seed = std::strtoull(text, nullptr, 10);
  }
  std::uint64_t draw() { return lockstep::random_bits(seed, 0, draws++); }
};

Streams& streams() {
  static Streams& the_streams = *new Streams;
  return the_streams;
}

// Before a piece of work, another stream may run one of its own, depending on the seed.
void let_others_get_on() {
  Streams& s = streams();
  if (s.seed == 0) return;
  while (s.draw() % 2 == 0) {
    EmulatedStream* const other = s.all[s.draw() % s.all.size()];
    if (other->queue.empty()) continue;
    if (other->queue.front().may_run()) get_on(other);
  }
}

}  // namespace

std::recursive_mutex& device_mutex() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return mutex;
}

void set_stream_seed(std::uint64_t seed) {
  const std::lock_guard lock(device_mutex());
  streams().seed = seed;
  streams().draws = 0;
}

EmulatedStream* make_stream(int device) {
  auto* const stream = new EmulatedStream;
  stream->device = device;
  streams().all.push_back(stream);
  return stream;
}

void end_stream(EmulatedStream* stream) {
  std::erase(streams().all, stream);
  streams().ended.emplace_back(stream);
}

void enqueue(EmulatedStream* stream, std::function<void()> run,
             std::shared_ptr<EmulatedSignal> waits_for, std::shared_ptr<const bool> cancelled) {
  if (stream) {
    stream->queue.push_back({std::move(run), std::move(waits_for), std::move(cancelled)});
    return;
  }
  if (!finish_all() || (waits_for && !finish(*waits_for))) std::abort();
  const DeviceWorks works;
  run();
}

Step get_on(EmulatedStream* stream) {
  const DeviceWorks works;
  while (!stream->queue.empty()) {
    if (!stream->queue.front().may_run()) {
      // A stream that waits for itself waits for ever.
      if (stream->waits) return Step::stuck;
      stream->waits = true;
      const auto waits_for = stream->queue.front().waits_for;
      const bool can_be = finish(*waits_for);
      stream->waits = false;
      if (!can_be) return Step::stuck;
      // Meanwhile this stream may also have made progress, and have a different front.
      continue;
    }
    const EmulatedStream::Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    work.run();
    return Step::done;
  }
  return Step::nothing_to_do;
}

bool finish(EmulatedStream* stream) {
  const DeviceWorks works;
  while (!stream->queue.empty()) {
    let_others_get_on();
    if (get_on(stream) == Step::stuck) return false;
  }
  return true;
}

bool finish(const EmulatedSignal& signal) {
  const DeviceWorks works;
  while (!signal.reached) {
    let_others_get_on();
    if (signal.reached) return true;
    if (!signal.stream || get_on(signal.stream) != Step::done) return false;
  }
  return true;
}

bool finish_all() {
  bool all = true;
  for (EmulatedStream* const stream : std::vector(streams().all)) all = finish(stream) && all;
  return all;
}

}  // namespace emulator
