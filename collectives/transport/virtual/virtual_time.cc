#include "collectives/transport/virtual/virtual_time.h"

#include <algorithm>
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

Line& VirtualTime::add(std::function<void()> body, double start) {
  ++unfinished_;
  lines_.emplace_back(new Line([this, run = std::move(body)] {
    resume_compute();
    run();
    pause_compute();
  }));
  push(start, lines_.back().get(), nullptr);
  return *lines_.back();
}

void VirtualTime::resume(Line& line) {
  running_ = &line;
  line.fiber_.resume();
  running_ = nullptr;
  if (line.finished()) --unfinished_;
}

void VirtualTime::run() {
  while (unfinished_ > 0) {
    while (!events_.empty()) {
      const Entry next = events_.top();
      events_.pop();
      if (next.event) {
        next.event->happen(next.time);
      } else {
        next.line->now_ = std::max(next.line->now_, next.time);
        resume(*next.line);
      }
    }
    for (std::size_t i = 0; i < lines_.size() && events_.empty(); ++i) {
      Line& line = *lines_[i];
      if (line.finished()) continue;
      line.stuck_ = true;
      line.waiting_ = false;
      resume(line);
    }
  }
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
  push(self.now_, &self, nullptr);
  self.fiber_.suspend();
}

bool VirtualTime::wait() {
  Line& self = *running_;
  self.waiting_ = true;
  self.fiber_.suspend();
  return !std::exchange(self.stuck_, false);
}

void VirtualTime::wake(Line& other, double time) {
  if (!other.waiting_) return;
  other.waiting_ = false;
  push(std::max(time, other.now_), &other, nullptr);
}

void VirtualTime::wake_all() {
  for (const auto& other : lines_) wake(*other, running_->now_);
}

void VirtualTime::schedule(double time, Event& event) { push(time, nullptr, &event); }

}  // namespace lockstep
