#include "collectives/base/cuda/thread_stream.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/base/cuda/check.h"

namespace lockstep::cuda {
namespace {

// Streams and events kept for reuse. Never destroyed: threads and events may outlive any order of
// destruction, and the driver frees everything when the process ends.
template <typename T>
class Pool {
 public:
  template <typename Make>
  T take(Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const T taken = free_.back();
        free_.pop_back();
        return taken;
      }
    }
    return make();
  }
  void give_back(T item) {
    const std::lock_guard lock(mutex_);
    free_.push_back(item);
  }

 private:
  std::mutex mutex_;
  std::vector<T> free_;
};

struct Event {
  cudaEvent_t event = nullptr;
  cudaStream_t of = nullptr;  // where it was recorded last
};

struct ThreadStream {
  cudaStream_t stream = nullptr;
  bool changed = false;           // since `last`
  std::shared_ptr<Event> last{};  // the newest untimed event
};

// One per GPU.
struct Pools {
  Pool<Event*> plain_events, timed_events;
  Pool<ThreadStream*> streams;

  Pool<Event*>& events(bool timed) { return timed ? timed_events : plain_events; }
};

Pools& pools(int gpu) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<int, Pools>;
  const std::lock_guard lock(*mutex);
  return (*all)[gpu];
}

// Returns to its pool when its last owner releases it. A stream that already waits for it is not
// affected when the event is recorded again.
std::shared_ptr<Event> new_event(Pool<Event*>& events, bool timed) {
  Event* const taken = events.take([&] {
    auto made = std::make_unique<Event>();
    check(cudaEventCreateWithFlags(&made->event, timed ? cudaEventDefault : cudaEventDisableTiming),
          "create an event");
    return made.release();
  });
  return {taken, [&events](Event* event) { events.give_back(event); }};
}

// When a thread ends, other threads reuse its streams.
class OwnStreams {
 public:
  ~OwnStreams() {
    for (const auto& [gpu, stream] : streams_) pools(gpu).streams.give_back(stream);
  }
  ThreadStream& on(int gpu) {
    ThreadStream*& stream = streams_[gpu];
    if (!stream) {
      stream = pools(gpu).streams.take([] {
        auto made = std::make_unique<ThreadStream>();
        check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "create a stream");
        return made.release();
      });
    }
    return *stream;
  }

 private:
  std::map<int, ThreadStream*> streams_;
};

ThreadStream& thread_stream(int gpu) {
  thread_local OwnStreams own;
  use_gpu(gpu);
  return own.on(gpu);
}

const Event& event_of(const DeviceEvent& event) {
  return *static_cast<const Event*>(event.event());
}

}  // namespace

void use_gpu(int gpu) {
  thread_local int used = -1;
  if (used == gpu) return;
  check(cudaSetDevice(gpu), "use a GPU");
  used = gpu;
}

cudaStream_t this_stream(int gpu) {
  ThreadStream& own = thread_stream(gpu);
  own.changed = true;
  return own.stream;
}

DeviceEvent record_event(Device& device, int gpu, bool timed) {
  ThreadStream& own = thread_stream(gpu);
  if (!timed && !own.changed && own.last) return DeviceEvent(device, own.last);
  auto event = new_event(pools(gpu).events(timed), timed);
  event->of = own.stream;
  check(cudaEventRecord(event->event, own.stream), "record an event");
  if (timed) return DeviceEvent(device, std::move(event));
  own.last = std::move(event);
  own.changed = false;
  return DeviceEvent(device, own.last);
}

bool is_of_this_stream(int gpu, const DeviceEvent& event) {
  return event_of(event).of == thread_stream(gpu).stream;
}

void stream_wait(int gpu, const DeviceEvent& event) {
  if (is_of_this_stream(gpu, event)) return;
  ThreadStream& own = thread_stream(gpu);
  check(cudaStreamWaitEvent(own.stream, event_of(event).event, 0), "wait for an event");
  own.changed = true;  // the next event of this stream includes the one that it waits for
}

double seconds_between(const DeviceEvent& begin, const DeviceEvent& end) {
  check(cudaEventSynchronize(event_of(end).event), "wait for an event");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_of(begin).event, event_of(end).event),
        "measure the time between two events");
  return static_cast<double>(milliseconds) * 1e-3;
}

void synchronize_stream(int gpu) {
  check(cudaStreamSynchronize(thread_stream(gpu).stream), "wait for a stream");
}

}  // namespace lockstep::cuda
