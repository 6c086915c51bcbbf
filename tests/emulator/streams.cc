#include "tests/emulator/streams.h"

#include <cstdlib>
#include <vector>

#include "models/random.h"
#include "tests/emulator/memory.h"

namespace emulator {
namespace {

struct Streams {
  std::vector<EmulatedStream*> all;
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

// Before a piece of work, from a seed, another stream may get on by one of its own.
void let_others_get_on() {
  Streams& s = streams();
  if (s.seed == 0) return;
  while (s.draw() % 2 == 0) {
    EmulatedStream* const other = s.all[s.draw() % s.all.size()];
    if (other->queue.empty()) continue;
    const auto& waits_for = other->queue.front().waits_for;
    if (waits_for && !waits_for->reached) continue;
    get_on(other);
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

EmulatedStream* make_stream() {
  auto* const stream = new EmulatedStream;
  streams().all.push_back(stream);
  return stream;
}

void end_stream(EmulatedStream* stream) {
  finish(stream);
  std::erase(streams().all, stream);
  delete stream;
}

void enqueue(EmulatedStream* stream, std::function<void()> run,
             std::shared_ptr<EmulatedMark> waits_for) {
  if (stream) {
    stream->queue.push_back({std::move(run), std::move(waits_for)});
    return;
  }
  finish_all();
  if (waits_for) finish(*waits_for);
  const DeviceWorks works;
  run();
}

bool get_on(EmulatedStream* stream) {
  const DeviceWorks works;
  while (!stream->queue.empty()) {
    const auto waits_for = stream->queue.front().waits_for;
    if (waits_for && !waits_for->reached) {
      // Meanwhile this stream may get on, too, and have another front.
      finish(*waits_for);
      continue;
    }
    const EmulatedStream::Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    work.run();
    return true;
  }
  return false;
}

void finish(EmulatedStream* stream) {
  const DeviceWorks works;
  while (!stream->queue.empty()) {
    let_others_get_on();
    get_on(stream);
  }
}

void finish(const EmulatedMark& mark) {
  const DeviceWorks works;
  while (!mark.reached) {
    let_others_get_on();
    if (!mark.reached) get_on(mark.stream);
  }
}

void finish_all() {
  for (EmulatedStream* const stream : std::vector(streams().all)) finish(stream);
}

}  // namespace emulator
