// Background threads of a rank in virtual time: virtual threads.
#pragma once

#include "collectives/transport/concurrency.h"
#include "collectives/transport/virtual/virtual_time.h"

namespace lockstep {

class VirtualConcurrency final : public Concurrency {
 public:
  explicit VirtualConcurrency(VirtualTime& time) : time_(time) {}
  std::unique_ptr<Condition> condition() override;
  std::unique_ptr<Task> start(std::function<void()> body) override;
  void catch_up() override;

 private:
  VirtualTime& time_;
};

}  // namespace lockstep
