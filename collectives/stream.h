// A second line of execution of a rank: collectives enqueued on it run in order, beside the rank's
// compute. What the rank has enqueued on its ledger's device before that is done before, and what
// was enqueued there by the work is done before what the rank enqueues after its wait().
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "collectives/stopwatch.h"

namespace lockstep {

class Stream {
 public:
  // What became of one piece of work.
  class Handle {
   public:
    // Returns when the work is done; throws what it threw.
    void wait();
    bool done() const;

   private:
    friend class Stream;
    struct State;
    std::shared_ptr<State> state_;
  };

  // Every rank of `comm` makes its streams in the same order: each has a duplicate of the
  // communicator. `track` is its line in the trace.
  Stream(Communicator& comm, int track, std::string name);
  // Finishes the work that was enqueued. After a failure the rest is dropped.
  ~Stream();
  Stream(const Stream&) = delete;

  // Runs work(communicator of the stream) after all that was enqueued before. Never waits.
  Handle enqueue(std::function<void(Communicator&)> work);

  // Seconds the stream has spent working, so far; on a device that enqueues, the device's seconds.
  double busy_seconds() const;
  Communicator& communicator() { return comm_; }

 private:
  struct Item {
    std::function<void(Communicator&)> work;
    Mark before;  // on the device of the line that enqueued it
    std::shared_ptr<Handle::State> state;
  };

  void run();
  // Where its rank keeps its tensors; null: nowhere in particular.
  Device* device() const;

  Communicator comm_;
  Concurrency& concurrency_;
  mutable std::mutex mutex_;
  std::unique_ptr<Concurrency::Condition> wake_;
  std::deque<Item> queue_;
  Mark last_;  // of its own line
  std::exception_ptr failure_;
  Stopwatch busy_;
  bool closing_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Concurrency::Task> task_;
};

}  // namespace lockstep
