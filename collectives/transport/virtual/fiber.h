// A function with its own stack that can be suspended and resumed. Only one fiber of a scheduler
// runs at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep {

class Fiber {
 public:
  // `body` runs at the first resume(). It must not throw.
  explicit Fiber(std::function<void()> body);
  // Call only after the body has returned, or before the first resume().
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // Runs the body until it calls suspend() or returns. Do not call it in a fiber.
  void resume();
  // Called in the body: returns to the caller of resume(), and continues at the next resume().
  void suspend();
  bool finished() const;
  // How many a process can have, as far as their stacks or threads limit it.
  static std::size_t most();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
