#include "collectives/transport/virtual/virtual_time.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

namespace lockstep {
namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void VirtualTime::push(double time, VirtualThread* thread, Event* event) {
  events_.push({time, next_number_++, thread, event});
}

// Replaces the event that would have resumed it later.
void VirtualTime::resume_at(double time, VirtualThread& thread) {
  thread.resumed_by_ = next_number_;
  thread.resumed_at_ = time;
  push(time, &thread, nullptr);
}

VirtualThread& VirtualTime::add(std::function<void()> body, double start) {
  ++unfinished_;
  threads_.emplace_back(new VirtualThread([this, run = std::move(body)] {
    resume_compute();
    run();
    pause_compute();
  }));
  resume_at(start, *threads_.back());
  return *threads_.back();
}

void VirtualTime::resume(VirtualThread& thread) {
  running_ = &thread;
  thread.waiting_ = false;
  thread.resumed_by_ = -1;
  thread.fiber_.resume();
  running_ = nullptr;
  if (thread.finished()) --unfinished_;
}

void VirtualTime::run() {
  while (unfinished_ > 0) {
    while (unfinished_ > 0 && !events_.empty()) {
      const Entry next = events_.top();
      events_.pop();
      if (next.event) {
        next.event->happen(next.time);
      } else if (next.thread->resumed_by_ == next.number) {
        next.thread->now_ = std::max(next.thread->now_, next.time);
        resume(*next.thread);
      }
    }
    for (std::size_t i = 0; i < threads_.size() && events_.empty(); ++i) {
      VirtualThread& thread = *threads_[i];
      if (thread.finished()) continue;
      thread.stuck_ = true;
      resume(thread);
    }
  }
  for (; !events_.empty(); events_.pop())
    if (events_.top().event) events_.top().event->drop();
}

void VirtualTime::pause_compute() {
  if (measures_compute_) running_->now_ += processor_seconds() - running_->processor_s_;
}

void VirtualTime::resume_compute() {
  if (measures_compute_) running_->processor_s_ = processor_seconds();
}

void VirtualTime::catch_up() { sleep_until(running_->now_); }

void VirtualTime::sleep_until(double time) {
  VirtualThread& self = *running_;
  self.now_ = std::max(self.now_, time);
  if (events_.empty() || events_.top().time >= self.now_) return;
  resume_at(self.now_, self);
  self.fiber_.suspend();
}

bool VirtualTime::wait(double time) {
  VirtualThread& self = *running_;
  self.waiting_ = true;
  if (std::isfinite(time)) resume_at(time, self);
  self.fiber_.suspend();
  return !std::exchange(self.stuck_, false);
}

void VirtualTime::wake(VirtualThread& other, double time) {
  if (!other.waiting_) return;
  const double begin = std::max(time, other.now_);
  if (other.resumed_by_ < 0 || begin < other.resumed_at_) resume_at(begin, other);
}

void VirtualTime::wake_all() {
  for (const auto& other : threads_) wake(*other, running_->now_);
}

void VirtualTime::schedule(double time, Event& event) { push(time, nullptr, &event); }

}  // namespace lockstep
