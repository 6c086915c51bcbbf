// An NCCL communicator in non-blocking mode: its calls return at once, and this class waits for
// their completion. So a rank whose peer never comes can still be stopped.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>

#include "collectives/transport/nccl/failure.h"

namespace lockstep {

// Throws Error with NCCL's message unless `result` is success or in progress: bad_input for invalid
// use, else lost_rank.
void check_nccl(const Failure& failure, ncclResult_t result, std::string_view what);

class NcclComm {
 public:
  // Joins the communicator of that id, and returns when all ranks have joined. Throws Error with
  // NCCL's message (lost_rank), or past the deadline (timeout).
  NcclComm(Failure& failure, const ncclUniqueId& id, int size, int rank);
  // Finishes enqueued work, unless the world has failed: then it is aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;

  // Runs `body`, which enqueues work on this communicator, and returns when it is enqueued. One
  // call at a time. `what` names it in errors.
  void call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& body);
  // NCCL's asynchronous error, or success.
  ncclResult_t state();
  // Aborts all enqueued work, even if it hangs, and makes later calls fail.
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
