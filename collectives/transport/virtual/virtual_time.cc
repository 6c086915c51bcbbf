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
  const char* const memory = thread ? thread->suspended_at_ : reinterpret_cast<const char*>(event);
  events_.push_back({time, next_number_++, thread, event, memory});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

// Thousands of ranks do not fit into a cache. What the event after this one will use is fetched
// while this one runs.
VirtualTime::Entry VirtualTime::pop() {
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  const Entry next = events_.back();
  events_.pop_back();
  constexpr int line_bytes = 64, stack_lines = 12, event_lines = 4;
  if (!events_.empty() && events_.front().memory) {
    const Entry& following = events_.front();
    __builtin_prefetch(following.thread);
    for (int line = 0; line < (following.thread ? stack_lines : event_lines); ++line)
      __builtin_prefetch(following.memory + line * line_bytes);
  }
  return next;
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
      const Entry next = pop();
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
  for (const Entry& entry : std::exchange(events_, {}))
    if (entry.event) entry.event->drop();
}

void VirtualTime::suspend(VirtualThread& self) {
  self.suspended_at_ = static_cast<const char*>(__builtin_frame_address(0));
  self.fiber_.suspend();
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
  if (events_.empty() || events_.front().time >= self.now_) return;
  resume_at(self.now_, self);
  suspend(self);
}

bool VirtualTime::wait(double time) {
  VirtualThread& self = *running_;
  self.waiting_ = true;
  if (std::isfinite(time)) resume_at(time, self);
  suspend(self);
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
