// How a rank runs background threads: as real threads, or as virtual threads in virtual time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

namespace lockstep {

class Concurrency {
 public:
  // Replaces std::condition_variable. Every thread that waits or notifies holds the same mutex when
  // it reads or changes the condition.
  class Condition {
   public:
    virtual ~Condition() = default;
    virtual void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) = 0;
    virtual void notify_all() = 0;
  };
  // A running thread. The destructor joins it.
  class Task {
   public:
    virtual ~Task() = default;
  };

  virtual ~Concurrency() = default;
  virtual std::unique_ptr<Condition> condition() = 0;
  virtual std::unique_ptr<Task> start(std::function<void()> body) = 0;
  // Call it before reading state that other threads change. In virtual time it returns when all
  // events before this thread's time have happened.
  virtual void catch_up() = 0;
};

// Threads of the operating system. Thread-safe.
Concurrency& threads_concurrency();

}  // namespace lockstep
