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
      waiting_.push_back(&time_.thread());
      lock.unlock();
      // If no events are left, a rank that waits for a message reports it and wakes us.
      static_cast<void>(time_.wait());
      lock.lock();
    }
    time_.resume_compute();
  }
  void notify_all() override {
    for (VirtualThread* thread : std::exchange(waiting_, {}))
      time_.wake(*thread, time_.thread().now());
  }

 private:
  VirtualTime& time_;
  std::vector<VirtualThread*> waiting_;
};

class VirtualTask final : public Concurrency::Task {
 public:
  VirtualTask(VirtualTime& time, std::function<void()> body)
      : time_(time),
        thread_(time.add(
            [this, run = std::move(body)] {
              run();
              if (joiner_) time_.wake(*joiner_, time_.thread().now());
            },
            time.thread().now())) {}
  ~VirtualTask() override {
    joiner_ = &time_.thread();
    time_.pause_compute();
    while (!thread_.finished()) static_cast<void>(time_.wait());
    time_.resume_compute();
  }

 private:
  VirtualTime& time_;
  VirtualThread* joiner_ = nullptr;
  VirtualThread& thread_;
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
