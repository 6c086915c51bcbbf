#include "collectives/stream.h"

namespace lockstep {

struct Stream::Handle::State {
  explicit State(Concurrency& lines) : concurrency(lines), finished(lines.condition()) {}

  Concurrency& concurrency;
  mutable std::mutex mutex;
  std::unique_ptr<Concurrency::Condition> finished;
  bool done = false;
  std::exception_ptr failure;

  void finish(std::exception_ptr thrown) {
    const std::lock_guard lock(mutex);
    done = true;
    failure = std::move(thrown);
    finished->notify_all();
  }
};

// Has no deadline of its own: every wait inside the work has one, so the work ends.
void Stream::Handle::wait() {
  std::unique_lock lock(state_->mutex);
  state_->finished->wait(lock, [&] { return state_->done; });
  if (state_->failure) std::rethrow_exception(state_->failure);
}

bool Stream::Handle::done() const {
  state_->concurrency.catch_up();
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Stream::Stream(Communicator& comm, int track, std::string name)
    : comm_(comm.duplicate(track)),
      concurrency_(comm_.transport().concurrency()),
      wake_(concurrency_.condition()),
      task_(concurrency_.start([this] { run(); })) {
  if (comm_.records().trace) comm_.records().trace->name_track(track, name);
}

Stream::~Stream() {
  // While an error unwinds the rank, nobody will come to the collectives that are still queued.
  if (std::uncaught_exceptions() > exceptions_) comm_.transport().abandon();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_->notify_all();
  task_.reset();
}

Stream::Handle Stream::enqueue(std::function<void(Communicator&)> work) {
  Handle handle;
  handle.state_ = std::make_shared<Handle::State>(concurrency_);
  concurrency_.catch_up();
  {
    const std::lock_guard lock(mutex_);
    queue_.emplace_back(std::move(work), handle.state_);
  }
  wake_->notify_all();
  return handle;
}

double Stream::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_seconds_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_->wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto [work, state] = std::move(queue_.front());
    queue_.pop_front();
    std::exception_ptr thrown = failure_;
    lock.unlock();

    const double begin = comm_.transport().now_seconds();
    if (!thrown) {
      try {
        work(comm_);
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    const double seconds = comm_.transport().now_seconds() - begin;
    concurrency_.catch_up();

    lock.lock();
    failure_ = thrown;
    busy_seconds_ += seconds;
    // Counted before the waiter wakes, so that it sees the time.
    state->finish(thrown);
  }
}

}  // namespace lockstep
