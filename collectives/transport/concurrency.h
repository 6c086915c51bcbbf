// How a rank runs background threads: as threads, or as their stand-ins under a virtual clock.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

namespace lockstep {

class Concurrency {
 public:
  // Replaces std::condition_variable: every thread that waits or notifies holds the same mutex when
  // it looks at or changes what is waited for.
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
  // Call it before looking at state that other threads change. Under a virtual clock it returns
  // when everything earlier than this thread's time has happened.
  virtual void catch_up() = 0;
};

// Threads of the operating system. Thread-safe.
Concurrency& threads_concurrency();

}  // namespace lockstep
