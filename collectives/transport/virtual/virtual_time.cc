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

void VirtualTime::push(double time, Line* line, Event* event) {
  events_.push({time, next_number_++, line, event});
}

// What would have resumed it later does not any more.
void VirtualTime::resume_at(double time, Line& line) {
  line.resumed_by_ = next_number_;
  line.resumed_at_ = time;
  push(time, &line, nullptr);
}

Line& VirtualTime::add(std::function<void()> body, double start) {
  ++unfinished_;
  lines_.emplace_back(new Line([this, run = std::move(body)] {
    resume_compute();
    run();
    pause_compute();
  }));
  resume_at(start, *lines_.back());
  return *lines_.back();
}

void VirtualTime::resume(Line& line) {
  running_ = &line;
  line.waiting_ = false;
  line.resumed_by_ = -1;
  line.fiber_.resume();
  running_ = nullptr;
  if (line.finished()) --unfinished_;
}

void VirtualTime::run() {
  while (unfinished_ > 0) {
    while (unfinished_ > 0 && !events_.empty()) {
      const Entry next = events_.top();
      events_.pop();
      if (next.event) {
        next.event->happen(next.time);
      } else if (next.line->resumed_by_ == next.number) {
        next.line->now_ = std::max(next.line->now_, next.time);
        resume(*next.line);
      }
    }
    for (std::size_t i = 0; i < lines_.size() && events_.empty(); ++i) {
      Line& line = *lines_[i];
      if (line.finished()) continue;
      line.stuck_ = true;
      resume(line);
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
  Line& self = *running_;
  self.now_ = std::max(self.now_, time);
  if (events_.empty() || events_.top().time >= self.now_) return;
  resume_at(self.now_, self);
  self.fiber_.suspend();
}

bool VirtualTime::wait(double time) {
  Line& self = *running_;
  self.waiting_ = true;
  if (std::isfinite(time)) resume_at(time, self);
  self.fiber_.suspend();
  return !std::exchange(self.stuck_, false);
}

void VirtualTime::wake(Line& other, double time) {
  if (!other.waiting_) return;
  const double begin = std::max(time, other.now_);
  if (other.resumed_by_ < 0 || begin < other.resumed_at_) resume_at(begin, other);
}

void VirtualTime::wake_all() {
  for (const auto& other : lines_) wake(*other, running_->now_);
}

void VirtualTime::schedule(double time, Event& event) { push(time, nullptr, &event); }

}  // namespace lockstep
