// A function that stops in the middle and goes on later, on a stack of its own. One at a time of
// those that belong together runs.
#pragma once

#include <functional>
#include <memory>

namespace lockstep {

class Fiber {
 public:
  // `body` runs at the first resume(). It must not throw.
  explicit Fiber(std::function<void()> body);
  // Only once the body has returned, or before it has begun.
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // Runs the body until it calls suspend() or returns. Not from within a fiber.
  void resume();
  // Within the body: goes back to who called resume(), and returns at the next one.
  void suspend();
  bool finished() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
