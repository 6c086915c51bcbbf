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

VirtualTime::Moment& VirtualTime::moment_at(double time) {
  const auto place = events_.lower_bound(time);
  if (place != events_.end() && place->first == time) return place->second;
  if (spare_.empty()) return events_.emplace_hint(place, time, Moment{})->second;
  Moments::node_type node = std::move(spare_.back());
  spare_.pop_back();
  node.key() = time;
  return events_.insert(place, std::move(node))->second;
}

void VirtualTime::forget(Moments::iterator passed) {
  constexpr std::size_t most = 64;
  Moments::node_type node = events_.extract(passed);
  if (spare_.size() == most) return;
  node.mapped().entries.clear();
  node.mapped().begun = 0;
  spare_.push_back(std::move(node));
}

// Thousands of ranks do not fit into a cache. What the events of one time will use is fetched while
// those before them run: first the thread or the message; later what the message leads to, or what
// the thread has announced and both ends of its stack. At the outer end are the rank's communicator
// and counters.
void VirtualTime::fetch_ahead(const Moment& moment) {
  constexpr std::size_t far = 8, near = 4;
  constexpr int line_bytes = 64, event_lines = 4, below = 8, inner_lines = 16, outer_lines = 10;
  const auto fetch = [](const void* memory, int lines) {
    for (int line = 0; line < lines; ++line)
      __builtin_prefetch(static_cast<const char*>(memory) + line * line_bytes);
  };
  if (moment.begun + far < moment.entries.size()) {
    const Entry& entry = moment.entries[moment.begun + far];
    fetch(entry.is_event() ? static_cast<const void*>(entry.event) : entry.thread, event_lines);
  }
  if (moment.begun + near < moment.entries.size()) {
    const Entry& entry = moment.entries[moment.begun + near];
    if (entry.is_event()) return entry.event->fetch_ahead();
    for (const void* const place : entry.thread->used_next_) fetch(place, 2);
    if (!entry.thread->suspended_at_) return;
    fetch(entry.thread->suspended_at_ - below * line_bytes, below + inner_lines);
    fetch(entry.thread->began_at_ - outer_lines * line_bytes, outer_lines);
  }
}

// Replaces the event that would have resumed it later.
void VirtualTime::resume_at(double time, VirtualThread& thread) {
  thread.resumed_by_ = resumptions_++;
  thread.resumed_at_ = time;
  moment_at(time).entries.push_back({.resumption = thread.resumed_by_, .thread = &thread});
}

VirtualThread& VirtualTime::add(std::function<void()> body, double start) {
  ++unfinished_;
  threads_.emplace_back(new VirtualThread([this, run = std::move(body)] {
    running_->began_at_ = static_cast<const char*>(__builtin_frame_address(0));
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

void VirtualTime::run_events() {
  while (unfinished_ > 0 && !events_.empty()) {
    const auto first = events_.begin();
    const double time = first->first;
    Moment& moment = first->second;
    const Entry next = moment.entries[moment.begun++];
    fetch_ahead(moment);
    // Where messages cost nothing, a moment may last for the whole run.
    constexpr std::size_t many = 1024;
    if (moment.begun >= many && 2 * moment.begun >= moment.entries.size()) {
      moment.entries.erase(moment.entries.begin(),
                           moment.entries.begin() + static_cast<std::ptrdiff_t>(moment.begun));
      moment.begun = 0;
    }
    if (moment.begun == moment.entries.size()) forget(first);
    if (next.is_event()) {
      next.event->happen(time);
    } else if (next.thread->resumed_by_ == next.resumption) {
      next.thread->now_ = std::max(next.thread->now_, time);
      resume(*next.thread);
    }
  }
}

void VirtualTime::run() {
  while (unfinished_ > 0) {
    run_events();
    for (std::size_t i = 0; i < threads_.size() && events_.empty(); ++i) {
      VirtualThread& thread = *threads_[i];
      if (thread.finished()) continue;
      thread.stuck_ = true;
      resume(thread);
    }
  }
  for (const auto& [time, moment] : std::exchange(events_, {}))
    for (std::size_t i = moment.begun; i < moment.entries.size(); ++i)
      if (moment.entries[i].is_event()) moment.entries[i].event->drop();
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
  if (events_.empty() || events_.begin()->first >= self.now_) return;
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

void VirtualTime::schedule(double time, Event& event) {
  moment_at(time).entries.push_back({.resumption = -1, .event = &event});
}

}  // namespace lockstep
