// Virtual time: lines of execution whose clocks advance by what they are told things cost, not by
// how long they take.
//
// A discrete-event simulation. Events happen in the order of their times, those of one time in the
// order in which they were made, so a run is the same every time. A line runs until it waits;
// before it touches what others can see, everything earlier has happened.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <vector>

#include "collectives/transport/virtual/fiber.h"

namespace lockstep {

class VirtualTime;

// One line of execution: a rank's program, or a stream of it.
class Line {
 public:
  double now() const { return now_; }
  bool finished() const { return fiber_.finished(); }

 private:
  friend class VirtualTime;
  explicit Line(std::function<void()> body) : fiber_(std::move(body)) {}

  Fiber fiber_;
  double now_ = 0;
  double processor_s_ = 0;  // the thread's processor time when this line last ran on its own
  bool waiting_ = false;
  // The event that resumes it, if there is one: its number and its time.
  std::int64_t resumed_by_ = -1;
  double resumed_at_ = 0;
  bool stuck_ = false;
};

class VirtualTime {
 public:
  // What happens at some time. Outlives the time it was scheduled for.
  class Event {
   public:
    virtual ~Event() = default;
    virtual void happen(double now) = 0;
    // It will not happen any more: every line has ended.
    virtual void drop() = 0;
  };

  // Whether the processor time that a line's own code takes advances its clock.
  explicit VirtualTime(bool measures_compute) : measures_compute_(measures_compute) {}

  // A line that begins at `start`.
  Line& add(std::function<void()> body, double start);
  // Until every line has ended. When all wait and nothing is to happen any more, their wait() says
  // so, one line after the other.
  void run();

  // The line that runs; the calls below are made by it.
  Line& line() { return *running_; }
  // Its own code has run until here: what follows, until it goes on, costs nothing.
  void pause_compute();
  void resume_compute();
  // Lets everything earlier than the line's time happen first.
  void catch_up();
  // Lets the line wait until `time`, if that is ahead.
  void sleep_until(double time);
  // Waits for wake(), at most until `time`. False: nothing will happen any more.
  bool wait(double time = std::numeric_limits<double>::infinity());
  // Ends the wait of `other` at `time`, unless that ends earlier anyway; does nothing to a line
  // that does not wait. Also from events.
  void wake(Line& other, double time);
  // Ends the wait of every line, now.
  void wake_all();
  void schedule(double time, Event& event);

 private:
  struct Entry {
    double time;
    std::int64_t number;
    Line* line;    // to resume,
    Event* event;  // or to happen
    bool operator>(const Entry& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  void push(double time, Line* line, Event* event);
  void resume_at(double time, Line& line);
  void resume(Line& line);

  bool measures_compute_;
  Line* running_ = nullptr;
  std::int64_t next_number_ = 0;
  std::int64_t unfinished_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> events_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace lockstep
