#include "collectives/turns.h"

#include <utility>

namespace lockstep {

Turns::Turns(Communicator& comm)
    : concurrency_(comm.transport().concurrency()),
      records_(comm.records()),
      changed_(concurrency_.condition()) {}

Turns::~Turns() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_->notify_all();
  }
  task_.reset();
}

void Turns::take(const std::function<void()>& first, std::function<void()> second,
                 Listener listener) {
  second_ = std::move(second);
  listener_ = std::move(listener);
  failure_ = nullptr;
  abandoned_ = false;
  done_ = {};
  taken_ = true;
  if (!task_) task_ = concurrency_.start([this] { run_second(); });
  try {
    tell(0, true);
    first();
    tell(0, false);
  } catch (...) {
    abandoned_ = true;
    end_second();
    throw;
  }
  end_second();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Turns::end_second() {
  done_[0] = true;
  if (!done_[1]) give(1);
  taken_ = false;
  second_ = nullptr;
  listener_ = nullptr;
}

void Turns::pass_on() {
  if (!are_two()) return;
  const int self = turn_;
  tell(self, false);
  give(1 - self);
  if (self == 1 && abandoned_) throw Abandoned{};
  if (self == 0 && failure_) std::rethrow_exception(failure_);
  tell(self, true);
}

void Turns::give(int to) {
  before_ = record_on(device());
  concurrency_.catch_up();
  std::unique_lock lock(mutex_);
  turn_ = to;
  changed_->notify_all();
  wait_for(lock, 1 - to);
  lock.unlock();
  go_on();
}

// Needs no deadline: the other work waits only for exchanges, which have one.
void Turns::wait_for(std::unique_lock<std::mutex>& lock, int turn) {
  changed_->wait(lock, [&] { return turn_ == turn || closing_; });
}

void Turns::go_on() const {
  before_.stream_wait();
  if (records_.observer) records_.observer->goes_on();
}

void Turns::run_second() {
  std::unique_lock lock(mutex_);
  while (true) {
    wait_for(lock, 1);
    if (closing_) return;
    lock.unlock();
    try {
      go_on();
      if (!abandoned_) {
        tell(1, true);
        second_();
        tell(1, false);
      }
      before_ = record_on(device());
    } catch (...) {
      failure_ = std::current_exception();
    }
    done_[1] = true;
    concurrency_.catch_up();
    lock.lock();
    turn_ = 0;
    changed_->notify_all();
  }
}

Device* Turns::device() const { return records_.ledger ? records_.ledger->device() : nullptr; }

}  // namespace lockstep
