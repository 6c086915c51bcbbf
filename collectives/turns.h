// Two pieces of work of one rank that take turns, on two threads that run one at a time. Each
// passes its turn on when it has started an exchange on a stream: while that is under way, the other one
// computes. Turns change at places in the work and never by time, so ranks that do the same work
// start their exchanges in the same order.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "collectives/communicator.h"

namespace lockstep {

class Turns {
 public:
  explicit Turns(Communicator& comm);
  // Ends the second thread.
  ~Turns();
  Turns(const Turns&) = delete;

  // Hears on the thread of work 0 or 1 that its turn begins (true) or ends.
  using Listener = std::function<void(int work, bool begins)>;
  // Runs both, `first` on the calling thread, which has the first turn, and returns when both are done.
  // When one is done, the other keeps its turn. Throws what either throws; the other one then ends
  // at pass_on(), or at once if it has not begun.
  void take(const std::function<void()>& first, std::function<void()> second, Listener listener);

  // Called in the work: lets the other one run until it passes its turn on or is done.
  void pass_on();
  // Whether both works have still to end.
  bool are_two() const { return taken_ && !done_[0] && !done_[1]; }
  // The work that runs; 0 outside of take().
  int current() const { return turn_; }

 private:
  struct Abandoned {};

  void run_second();
  void end_second();
  // The turn changes; returns when it is back, unless this work is done.
  void give(int to);
  void wait_for(std::unique_lock<std::mutex>& lock, int turn);
  // After waiting: the device and the observer learn that this thread goes on with the rank's work.
  void go_on() const;
  void tell(int work, bool begins) const {
    if (listener_) listener_(work, begins);
  }
  Device* device() const;

  Concurrency& concurrency_;
  RankRecords records_;
  std::mutex mutex_;
  std::unique_ptr<Concurrency::Condition> changed_;
  int turn_ = 0;  // what follows is of the work that has it
  bool taken_ = false, abandoned_ = false, closing_ = false;
  std::array<bool, 2> done_{};
  std::function<void()> second_;
  Listener listener_;
  std::exception_ptr failure_;  // of the second work
  DeviceEvent before_;          // what the work before has enqueued
  std::unique_ptr<Concurrency::Task> task_;
};

}  // namespace lockstep
