#include "collectives/base/cuda/line.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
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

struct Line {
  cudaStream_t stream = nullptr;
  bool changed = false;           // since `last`
  std::shared_ptr<Event> last{};  // of the plain ones
};

// What there is of each card.
struct Pools {
  Pool<Event*> plain_events, timed_events;
  Pool<Line*> lines;

  Pool<Event*>& events(bool timed) { return timed ? timed_events : plain_events; }
};

Pools& pools(int card) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<int, Pools>;
  const std::lock_guard lock(*mutex);
  return (*all)[card];
}

// An event that goes back to its pool with the last mark that holds it: what waits for it by then
// waits for the moment, not for the event.
std::shared_ptr<Event> new_event(Pool<Event*>& events, bool timed) {
  Event* const taken = events.take([&] {
    auto made = std::make_unique<Event>();
    check(cudaEventCreateWithFlags(&made->event, timed ? cudaEventDefault : cudaEventDisableTiming),
          "create an event");
    return made.release();
  });
  return {taken, [&events](Event* event) { events.give_back(event); }};
}

// A thread's lines go to other threads when it ends.
class OwnLines {
 public:
  ~OwnLines() {
    for (const auto& [card, line] : lines_) pools(card).lines.give_back(line);
  }
  Line& on(int card) {
    Line*& line = lines_[card];
    if (!line) {
      line = pools(card).lines.take([] {
        auto made = std::make_unique<Line>();
        check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "create a stream");
        return made.release();
      });
    }
    return *line;
  }

 private:
  std::map<int, Line*> lines_;
};

Line& this_line(int card) {
  thread_local OwnLines own;
  use_card(card);
  return own.on(card);
}

const Event& event_of(const Mark& mark) { return *static_cast<const Event*>(mark.event()); }

}  // namespace

void use_card(int card) {
  thread_local int used = -1;
  if (used == card) return;
  check(cudaSetDevice(card), "use a card");
  used = card;
}

cudaStream_t this_stream(int card) {
  Line& line = this_line(card);
  line.changed = true;
  return line.stream;
}

Mark mark_line(Device& device, int card, bool timed) {
  Line& line = this_line(card);
  if (!timed && !line.changed && line.last) return Mark(device, line.last);
  auto event = new_event(pools(card).events(timed), timed);
  event->of = line.stream;
  check(cudaEventRecord(event->event, line.stream), "record an event");
  if (timed) return Mark(device, std::move(event));
  line.last = std::move(event);
  line.changed = false;
  return Mark(device, line.last);
}

bool is_of_this_line(int card, const Mark& mark) {
  return event_of(mark).of == this_line(card).stream;
}

void follow(int card, const Mark& mark) {
  if (is_of_this_line(card, mark)) return;
  Line& line = this_line(card);
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

void wait_for_line(int card) {
  check(cudaStreamSynchronize(this_line(card).stream), "finish what was enqueued");
}

}  // namespace lockstep::cuda
