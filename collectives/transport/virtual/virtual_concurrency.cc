#include "collectives/transport/virtual/virtual_concurrency.h"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

class VirtualCondition final : public Concurrency::Condition {
 public:
  explicit VirtualCondition(VirtualTime& time) : time_(time) {}

  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) override {
    lock.unlock();
    time_.pause_compute();
    time_.catch_up();
    lock.lock();
    while (!ready()) {
      waiting_.push_back(&time_.line());
      lock.unlock();
      // When nothing can happen any more, a rank that waits for a message says why and wakes us.
      static_cast<void>(time_.wait());
      lock.lock();
    }
    time_.resume_compute();
  }
  void notify_all() override {
    for (Line* line : std::exchange(waiting_, {})) time_.wake(*line, time_.line().now());
  }

 private:
  VirtualTime& time_;
  std::vector<Line*> waiting_;
};

class VirtualTask final : public Concurrency::Task {
 public:
  VirtualTask(VirtualTime& time, std::function<void()> body)
      : time_(time),
        line_(time.add(
            [this, run = std::move(body)] {
              run();
              if (joiner_) time_.wake(*joiner_, time_.line().now());
            },
            time.line().now())) {}
  ~VirtualTask() override {
    joiner_ = &time_.line();
    time_.pause_compute();
    while (!line_.finished()) static_cast<void>(time_.wait());
    time_.resume_compute();
  }

 private:
  VirtualTime& time_;
  Line* joiner_ = nullptr;
  Line& line_;
};

}  // namespace

std::unique_ptr<Concurrency::Condition> VirtualConcurrency::condition() {
  return std::make_unique<VirtualCondition>(time_);
}

std::unique_ptr<Concurrency::Task> VirtualConcurrency::start(std::function<void()> body) {
  time_.pause_compute();
  auto task = std::make_unique<VirtualTask>(time_, std::move(body));
  time_.resume_compute();
  return task;
}

void VirtualConcurrency::catch_up() {
  time_.pause_compute();
  time_.catch_up();
  time_.resume_compute();
}

}  // namespace lockstep
