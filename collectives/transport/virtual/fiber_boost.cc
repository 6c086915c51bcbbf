// Fibers with Boost.Context: a switch costs about ten nanoseconds, a fiber one stack.
#include <cxxabi.h>

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstring>

#include "collectives/transport/virtual/fiber.h"

namespace lockstep {
namespace {

namespace context = boost::context;

// Reserved addresses: only pages that are used take memory.
constexpr std::size_t stack_bytes = 256 << 10;

// The exceptions in flight belong to a fiber, but C++ keeps them per thread.
class ExceptionState {
 public:
  void swap() {
    std::array<std::byte, bytes> other;
    void* const of_thread = abi::__cxa_get_globals();
    std::memcpy(other.data(), of_thread, bytes);
    std::memcpy(of_thread, saved_.data(), bytes);
    saved_ = other;
  }

 private:
  // The Itanium C++ ABI: a pointer to the caught exceptions, and the number of uncaught ones.
  static constexpr std::size_t bytes = 2 * sizeof(void*);
  std::array<std::byte, bytes> saved_{};
};

}  // namespace

struct Fiber::State {
  context::fiber inside, outside;
  ExceptionState exceptions;
  bool finished = false;
};

Fiber::Fiber(std::function<void()> body) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.inside = context::fiber(std::allocator_arg, context::protected_fixedsize_stack(stack_bytes),
                                [&state, run = std::move(body)](context::fiber&& caller) mutable {
                                  state.outside = std::move(caller);
                                  run();
                                  // Destroys captured objects while the stack still exists.
                                  run = nullptr;
                                  state.finished = true;
                                  return std::move(state.outside);
                                });
}

Fiber::~Fiber() = default;

void Fiber::resume() {
  state_->exceptions.swap();
  state_->inside = std::move(state_->inside).resume();
  state_->exceptions.swap();
}

void Fiber::suspend() { state_->outside = std::move(state_->outside).resume(); }

bool Fiber::finished() const { return state_->finished; }

}  // namespace lockstep
