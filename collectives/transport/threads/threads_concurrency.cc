#include <condition_variable>
#include <thread>

#include "collectives/transport/concurrency.h"

namespace lockstep {
namespace {

class ThreadsCondition final : public Concurrency::Condition {
 public:
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) override {
    condition_.wait(lock, ready);
  }
  void notify_all() override { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

class ThreadsTask final : public Concurrency::Task {
 public:
  explicit ThreadsTask(std::function<void()> body) : thread_(std::move(body)) {}

 private:
  std::jthread thread_;
};

class Threads final : public Concurrency {
 public:
  std::unique_ptr<Condition> condition() override { return std::make_unique<ThreadsCondition>(); }
  std::unique_ptr<Task> start(std::function<void()> body) override {
    return std::make_unique<ThreadsTask>(std::move(body));
  }
  void catch_up() override {}
};

}  // namespace

Concurrency& threads_concurrency() {
  static Threads threads;
  return threads;
}

}  // namespace lockstep
