// Why a rank's world has failed, if it has. The rank's threads check it before they wait.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "collectives/base/error.h"

namespace lockstep {

class Failure {
 public:
  // For one rank of `size`; `timeout_s` applies to every wait.
  Failure(int rank, int size, double timeout_s) : rank_(rank), size_(size), timeout_s_(timeout_s) {}

  // Only the first one is kept.
  void set(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_.emplace(error);
    failed_.store(true);
  }
  bool is_set() const { return failed_.load(); }
  void check() const {
    if (!is_set()) return;
    const std::lock_guard lock(mutex_);
    throw Error(*error_);
  }
  double timeout_s() const { return timeout_s_; }
  // The context of an error in an operation over NCCL.
  ErrorContext context(std::string hint) const {
    return {.rank = rank_, .size = size_, .operation = "an operation over nccl", .hint = hint};
  }

 private:
  const int rank_, size_;
  const double timeout_s_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace lockstep
