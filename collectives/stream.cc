#include "collectives/stream.h"

namespace lockstep {

struct Stream::Handle::State {
  State(Concurrency& threads, CollectiveObserver* hears, const void* of, std::int64_t work)
      : concurrency(threads),
        observer(hears),
        stream(of),
        number(work),
        finished(threads.condition()) {}

  Concurrency& concurrency;
  CollectiveObserver* observer;
  const void* stream;
  std::int64_t number;  // among the works of the stream
  mutable std::mutex mutex;
  std::unique_ptr<Concurrency::Condition> finished;
  bool done = false;
  DeviceEvent after;
  std::exception_ptr failure;

  void finish(std::exception_ptr thrown, const DeviceEvent& event) {
    const std::lock_guard lock(mutex);
    done = true;
    after = event;
    failure = std::move(thrown);
    finished->notify_all();
  }
};

// Needs no deadline: every wait inside the work has one, so the work ends.
void Stream::Handle::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->finished->wait(lock, [&] { return state_->done; });
  if (state_->failure) std::rethrow_exception(state_->failure);
  state_->after.stream_wait();
  lock.unlock();
  if (state_->observer) state_->observer->waited(state_->stream, state_->number);
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
      busy_(comm_),
      task_(concurrency_.start([this] { run(); })) {
  if (comm_.records().trace) comm_.records().trace->name_track(track, name);
}

Stream::~Stream() {
  // If an error unwinds this rank, other ranks will not join the collectives still in the queue.
  if (std::uncaught_exceptions() > exceptions_) comm_.transport().abandon();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_->notify_all();
  task_.reset();
  try {
    last_.stream_wait();  // the work's memory may be released without a wait for its handle
  } catch (...) {
    // A failed device does no more work.
  }
}

void Stream::run_while(const Handle& work, const std::function<void()>& meanwhile) {
  try {
    meanwhile();
  } catch (...) {
    comm_.transport().abandon();
    try {
      work.wait();
    } catch (...) {
      // The first error is the cause.
    }
    throw;
  }
}

Stream::Handle Stream::enqueue(std::function<void(Communicator&)> work) {
  Handle handle;
  handle.state_ =
      std::make_shared<Handle::State>(concurrency_, comm_.records().observer, this, enqueued_++);
  DeviceEvent before = record_on(device());
  concurrency_.catch_up();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), std::move(before), handle.state_});
  }
  wake_->notify_all();
  return handle;
}

Device* Stream::device() const {
  const Ledger* const ledger = comm_.records().ledger;
  return ledger ? ledger->device() : nullptr;
}

double Stream::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_.seconds();
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

    const ThreadClock& clock = busy_.clock();
    ThreadClock::Moment begin, end;
    if (!thrown) {
      try {
        item.before.stream_wait();
        begin = clock.now();
        CollectiveObserver* const observer = item.state->observer;
        if (observer) observer->begin_work(this, item.state->number);
        item.work(comm_);
        if (observer) observer->end_work();
        last_ = record_on(device());
        end = clock.now();
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    concurrency_.catch_up();

    lock.lock();
    failure_ = thrown;
    if (!thrown) busy_.add(std::move(begin), std::move(end));
    // Counts the time before the waiting thread wakes and may read it.
    item.state->finish(thrown, last_);
  }
}

}  // namespace lockstep
