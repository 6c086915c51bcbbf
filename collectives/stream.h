// A communication stream: a background thread that runs collectives in order, overlapped with the
// rank's compute. On the ledger's device, the work of a collective starts after the work that the
// rank enqueued before, and ends before the work that the rank enqueues after the handle's wait().
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
  // The completion of one collective or other piece of work.
  class Handle {
   public:
    // Returns when the work is done. Throws what the work threw.
    void wait() const;
    bool done() const;

   private:
    friend class Stream;
    struct State;
    std::shared_ptr<State> state_;
  };

  // Every rank of `comm` creates its streams in the same order, because each duplicates the
  // communicator. `track` is its track in the trace.
  Stream(Communicator& comm, int track, std::string name);
  // Finishes enqueued work. After a failure drops it.
  ~Stream();
  Stream(const Stream&) = delete;

  // Runs work(communicator of the stream) after all work enqueued before. Never waits.
  Handle enqueue(std::function<void(Communicator&)> work);

  // Runs meanwhile() while the stream does `work`. If it throws, leaves the collectives of this rank and
  // waits for the work, because the caller is about to free the memory that it uses.
  void run_while(const Handle& work, const std::function<void()>& meanwhile);

  // The seconds for which the stream has worked; on a device that enqueues, the device's seconds.
  double busy_seconds() const;
  Communicator& communicator() { return comm_; }

 private:
  struct Item {
    std::function<void(Communicator&)> work;
    DeviceEvent before;  // recorded by the thread that enqueued it
    std::shared_ptr<Handle::State> state;
  };

  void run();
  // The device of the rank's tensors; null if unknown.
  Device* device() const;

  Communicator comm_;
  Concurrency& concurrency_;
  mutable std::mutex mutex_;
  std::unique_ptr<Concurrency::Condition> wake_;
  std::deque<Item> queue_;
  std::int64_t enqueued_ = 0;
  DeviceEvent last_;  // recorded by the stream's thread
  std::exception_ptr failure_;
  Stopwatch busy_;
  bool closing_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Concurrency::Task> task_;
};

}  // namespace lockstep
