#include "collectives/stream.h"

namespace lockstep {

struct Stream::Handle::State {
  explicit State(Concurrency& lines) : concurrency(lines), finished(lines.condition()) {}

  Concurrency& concurrency;
  mutable std::mutex mutex;
  std::unique_ptr<Concurrency::Condition> finished;
  bool done = false;
  Mark after;
  std::exception_ptr failure;

  void finish(std::exception_ptr thrown, const Mark& mark) {
    const std::lock_guard lock(mutex);
    done = true;
    after = mark;
    failure = std::move(thrown);
    finished->notify_all();
  }
};

// Has no deadline of its own: every wait inside the work has one, so the work ends.
void Stream::Handle::wait() {
  std::unique_lock lock(state_->mutex);
  state_->finished->wait(lock, [&] { return state_->done; });
  if (state_->failure) std::rethrow_exception(state_->failure);
  state_->after.follow();
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
  try {
    last_.follow();  // for who releases what the work used, and never waited for it
  } catch (...) {
    // A device that has failed does nothing more.
  }
}

Stream::Handle Stream::enqueue(std::function<void(Communicator&)> work) {
  Handle handle;
  handle.state_ = std::make_shared<Handle::State>(concurrency_);
  Mark before = mark_on(device());
  concurrency_.catch_up();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), std::move(before), handle.state_});
  }
  wake_->notify_all();
  return handle;
}

void Stream::count_there(Mark begin, Mark end) {
  constexpr std::size_t most_kept = 256;  // so old ones are over
  const std::lock_guard lock(mutex_);
  times_there_.emplace_back(std::move(begin), std::move(end));
  add_times_there(most_kept);
}

Device* Stream::device() const {
  const Ledger* const ledger = comm_.records().ledger;
  return ledger ? ledger->device() : nullptr;
}

double Stream::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  add_times_there(0);
  return busy_seconds_;
}

// Waits for what it counts: all but the last `kept`. The caller holds the mutex.
void Stream::add_times_there(std::size_t kept) const {
  for (; times_there_.size() > kept; times_there_.pop_front()) {
    const auto& [begin, end] = times_there_.front();
    busy_seconds_ += device()->seconds_between(begin, end);
  }
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_->wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    std::exception_ptr thrown = failure_;
    lock.unlock();

    const bool there = device() && device()->enqueues();
    const double begin = comm_.transport().now_seconds();
    if (!thrown) {
      try {
        item.before.follow();
        Mark begin_there = there ? device()->mark(true) : Mark();
        item.work(comm_);
        last_ = mark_on(device());
        if (there) count_there(std::move(begin_there), device()->mark(true));
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    const double seconds = comm_.transport().now_seconds() - begin;
    concurrency_.catch_up();

    lock.lock();
    failure_ = thrown;
    if (!there) busy_seconds_ += seconds;
    // Counted before the waiter wakes, so that it sees the time.
    item.state->finish(thrown, last_);
  }
}

}  // namespace lockstep
