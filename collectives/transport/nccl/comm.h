// One NCCL communicator. NCCL is asked not to block: a call returns at once, and what it began is
// waited for here, so that a rank whose peer never comes can still be stopped.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>

#include "collectives/transport/nccl/failure.h"

namespace lockstep {

// Throws Error with NCCL's own words unless `result` is success or in progress: bad_input where it
// does not allow what is asked for, else lost_rank.
void check_nccl(const Failure& failure, ncclResult_t result, std::string_view what);

class NcclComm {
 public:
  // Joins the communicator of that id, and returns when all have joined. Throws Error (lost_rank)
  // that says what NCCL says, and past the deadline (timeout).
  NcclComm(Failure& failure, const ncclUniqueId& id, int size, int rank);
  // In order, unless the world has failed: then what is enqueued is given up.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;

  // Runs `body`, which enqueues something, alone on this communicator, and returns when it is
  // enqueued. `what` names it in errors.
  void call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& body);
  // What has gone wrong behind the calls' backs, or success.
  ncclResult_t state();
  // Ends everything that is enqueued here, wherever it hangs, and all later calls.
  void abort() noexcept;
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  void wait_while_in_progress(std::string_view what);

  Failure& failure_;
  int size_, rank_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace lockstep
