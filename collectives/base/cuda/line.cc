#include "collectives/base/cuda/line.h"

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/base/cuda/check.h"

namespace lockstep::cuda {
namespace {

// What is kept for who comes next. Never destroyed: threads and marks may outlive any order of
// destruction, and the driver takes all back when the process ends.
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

Pool<Event*>& events(bool timed) {
  static auto* const plain = new Pool<Event*>;
  static auto* const with_time = new Pool<Event*>;
  return timed ? *with_time : *plain;
}

// An event that goes back to its pool with the last mark that holds it: what waits for it by then
// waits for the moment, not for the event.
std::shared_ptr<Event> new_event(bool timed) {
  Event* const taken = events(timed).take([&] {
    auto made = std::make_unique<Event>();
    check(cudaEventCreateWithFlags(&made->event, timed ? cudaEventDefault : cudaEventDisableTiming),
          "create an event");
    return made.release();
  });
  return {taken, [timed](Event* event) { events(timed).give_back(event); }};
}

struct Line {
  cudaStream_t stream = nullptr;
  bool changed = false;           // since `last`
  std::shared_ptr<Event> last{};  // of the plain ones
};

Pool<Line*>& lines() {
  static auto* const pool = new Pool<Line*>;
  return *pool;
}

// A thread's line goes to another thread when it ends.
class OwnLine {
 public:
  ~OwnLine() {
    if (line_) lines().give_back(line_);
  }
  Line& line() {
    if (!line_) {
      line_ = lines().take([] {
        auto made = std::make_unique<Line>();
        check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "create a stream");
        return made.release();
      });
    }
    return *line_;
  }

 private:
  Line* line_ = nullptr;
};

Line& this_line() {
  thread_local OwnLine own;
  return own.line();
}

const Event& event_of(const Mark& mark) { return *static_cast<const Event*>(mark.event()); }

}  // namespace

cudaStream_t this_stream() {
  Line& line = this_line();
  line.changed = true;
  return line.stream;
}

Mark mark_line(Device& device, bool timed) {
  Line& line = this_line();
  if (!timed && !line.changed && line.last) return Mark(device, line.last);
  auto event = new_event(timed);
  event->of = line.stream;
  check(cudaEventRecord(event->event, line.stream), "record an event");
  if (timed) return Mark(device, std::move(event));
  line.last = std::move(event);
  line.changed = false;
  return Mark(device, line.last);
}

bool is_of_this_line(const Mark& mark) { return event_of(mark).of == this_line().stream; }

void follow(const Mark& mark) {
  if (is_of_this_line(mark)) return;
  Line& line = this_line();
  check(cudaStreamWaitEvent(line.stream, event_of(mark).event, 0), "wait for an event");
  line.changed = true;  // who follows this line follows that one, too
}

double seconds_between(const Mark& begin, const Mark& end) {
  check(cudaEventSynchronize(event_of(end).event), "wait for an event");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_of(begin).event, event_of(end).event),
        "tell the time between two events");
  return static_cast<double>(milliseconds) * 1e-3;
}

void wait_for_line() {
  check(cudaStreamSynchronize(this_line().stream), "finish what was enqueued");
}

}  // namespace lockstep::cuda
