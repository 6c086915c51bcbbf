// Virtual time: threads whose clocks advance by the modelled cost of their actions.
//
// A discrete-event simulation. Events happen in order of time; events at the same time happen in
// order of creation, so every run is the same. A thread runs until it waits. Before it touches
// shared state, all earlier events have happened.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "collectives/transport/virtual/fiber.h"

namespace lockstep {

class VirtualTime;

// A thread in virtual time: a rank's program, or one of its background threads.
class VirtualThread {
 public:
  double now() const { return now_; }
  bool finished() const { return fiber_.finished(); }
  // Memory that it will use when it goes on: the last few places are fetched into the caches before.
  // Nothing else depends on it.
  void will_use(const void* place) { used_next_[uses_++ % used_next_.size()] = place; }

 private:
  friend class VirtualTime;
  explicit VirtualThread(std::function<void()> body) : fiber_(std::move(body)) {}

  Fiber fiber_;
  double now_ = 0;
  double processor_s_ = 0;  // the OS thread's CPU time when this thread's own code last resumed
  // The ends of its stack: where it began, and where it was suspended.
  const char* began_at_ = nullptr;
  const char* suspended_at_ = nullptr;
  std::array<const void*, 8> used_next_{};
  std::size_t uses_ = 0;
  bool waiting_ = false;
  // What will resume it, if anything: its number and its time.
  std::int64_t resumed_by_ = -1;
  double resumed_at_ = 0;
  bool stuck_ = false;
};

class VirtualTime {
 public:
  // Happens at some time. Must outlive that time.
  class Event {
   public:
    virtual ~Event() = default;
    virtual void happen(double now) = 0;
    // The event will not happen: all threads have ended.
    virtual void drop() = 0;
    // Fetches what happen() will use into the caches.
    virtual void fetch_ahead() const {}
  };

  // Whether the CPU time of a thread's own code advances its clock.
  explicit VirtualTime(bool measures_compute) : measures_compute_(measures_compute) {}

  // Adds a thread that begins at `start`.
  VirtualThread& add(std::function<void()> body, double start);
  // Runs until all threads have ended. If all of them wait and no event is left, their wait()
  // returns false, one thread after the other.
  void run();

  // The running thread. It makes the calls below.
  VirtualThread& thread() { return *running_; }
  // The thread's own code pauses: until resume_compute(), CPU time is free.
  void pause_compute();
  void resume_compute();
  // Lets all events before the thread's time happen first.
  void catch_up();
  // Suspends the thread until `time`, if that lies ahead.
  void sleep_until(double time);
  // Waits for wake(), at most until `time`. False: no events are left.
  bool wait(double time = std::numeric_limits<double>::infinity());
  // Ends the wait of `other` at `time`, unless it ends earlier anyway. Does nothing if it does not
  // wait. Events may also call it.
  void wake(VirtualThread& other, double time);
  // Ends the wait of every thread, now.
  void wake_all();
  void schedule(double time, Event& event);

 private:
  struct Entry {
    std::int64_t resumption;  // its number; -1 for an event
    union {
      VirtualThread* thread;  // to resume,
      Event* event;           // or event to run
    };
    bool is_event() const { return resumption < 0; }
  };
  // The events of one time, in order of creation.
  struct Moment {
    std::vector<Entry> entries;
    std::size_t begun = 0;  // how many of them have happened, or are about to
  };
  using Moments = std::map<double, Moment>;  // by time
  // The one at `time`, which may be new.
  Moment& moment_at(double time);
  void forget(Moments::iterator passed);
  void resume_at(double time, VirtualThread& thread);
  void resume(VirtualThread& thread);
  void suspend(VirtualThread& self);
  void run_events();
  static void fetch_ahead(const Moment& moment);

  bool measures_compute_;
  VirtualThread* running_ = nullptr;
  std::int64_t resumptions_ = 0;
  std::int64_t unfinished_ = 0;
  Moments events_;
  std::vector<Moments::node_type> spare_;  // passed moments, whose memory is used again
  std::vector<std::unique_ptr<VirtualThread>> threads_;
};

}  // namespace lockstep
