// Fibers with Boost.Context: a switch costs about ten nanoseconds, a fiber one stack.
#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstring>
#include <limits>
#include <new>

#include "collectives/transport/virtual/fiber.h"

namespace lockstep {
namespace {

namespace context = boost::context;

// Stacks whose lowest page is a guard: an access to it is a segmentation fault.
class GuardedStacks {
 public:
  boost::context::stack_context allocate() {
    void* const lowest = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (lowest == MAP_FAILED) throw std::bad_alloc();
    if (!guard_lightly(lowest) && mprotect(lowest, page_bytes(), PROT_NONE) != 0) {
      munmap(lowest, bytes);
      throw std::bad_alloc();
    }
    boost::context::stack_context stack;
    stack.size = bytes;
    stack.sp = static_cast<std::byte*>(lowest) + bytes;
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) noexcept {
    munmap(static_cast<std::byte*>(stack.sp) - bytes, bytes);
  }
  // Otherwise each stack is two mappings, and a process may have 65,530 (vm.max_map_count).
  static std::size_t most() {
    GuardedStacks stacks;
    auto stack = stacks.allocate();
    const bool is_light = guard_lightly(static_cast<std::byte*>(stack.sp) - bytes);
    stacks.deallocate(stack);
    constexpr std::size_t with_two_mappings = 30'000;
    return is_light ? std::numeric_limits<std::size_t>::max() : with_two_mappings;
  }

 private:
  // A guard that leaves neighbouring stacks one mapping. False before Linux 6.13.
  static bool guard_lightly(void* lowest) {
    constexpr int install_guard = 102;  // MADV_GUARD_INSTALL, which older headers lack
    return madvise(lowest, page_bytes(), install_guard) == 0;
  }
  static std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  static constexpr std::size_t bytes = 256 << 10;  // of addresses: pages take memory once used
};

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
  state.inside = context::fiber(std::allocator_arg, GuardedStacks(),
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

std::size_t Fiber::most() { return GuardedStacks::most(); }

}  // namespace lockstep
