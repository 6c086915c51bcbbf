// Fibers as threads of which only one runs at a time. Slower than Boost.Context by two wake-ups per
// switch, but sanitizers and debuggers understand it.
#include <semaphore>
#include <thread>

#include "collectives/transport/virtual/fiber.h"

namespace lockstep {

struct Fiber::State {
  std::binary_semaphore inside{0}, outside{0};
  bool begun = false, finished = false;
  std::function<void()> body;
  std::thread thread;
};

Fiber::Fiber(std::function<void()> body) : state_(std::make_unique<State>()) {
  state_->body = std::move(body);
}

Fiber::~Fiber() {
  if (state_->thread.joinable()) state_->thread.join();
}

void Fiber::resume() {
  State& state = *state_;
  if (!state.begun) {
    state.begun = true;
    state.thread = std::thread([&state] {
      state.inside.acquire();
      state.body();
      state.body = nullptr;
      state.finished = true;
      state.outside.release();
    });
  }
  state.inside.release();
  state.outside.acquire();
}

void Fiber::suspend() {
  state_->outside.release();
  state_->inside.acquire();
}

bool Fiber::finished() const { return state_->finished; }

std::size_t Fiber::most() { return 4000; }  // the thread sanitizer has 8,128 threads

}  // namespace lockstep
