#include "collectives/transport/nccl/comm.h"

#include <fmt/format.h>

#include "collectives/transport/failure/waited_time.h"
#include "collectives/transport/transport.h"

namespace lockstep {
namespace {

// Returns NCCL's last message, from a buffer that all threads of the process share. Another thread
// may overwrite it with a shorter text meanwhile, and the copy then has a zero within.
std::string last_error() {
  const std::string copy = ncclGetLastError(nullptr);
  return copy.c_str();
}

}  // namespace

void check_nccl(const Failure& failure, ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string detail = last_error();
  std::string hint = "NCCL_DEBUG=WARN shows more";
  const bool not_allowed = result == ncclInvalidUsage;  // usually two ranks on one GPU
  if (not_allowed)
    hint = "each rank needs its own GPU; without mpirun, --ranks N share one; " + hint;
  throw Error(not_allowed ? ErrorKind::bad_input : ErrorKind::lost_rank,
              fmt::format("NCCL cannot {}: {}{}{}", what, ncclGetErrorString(result),
                          detail.empty() ? "" : ": ", detail),
              failure.context(hint));
}

NcclComm::NcclComm(Failure& failure, const ncclUniqueId& id, int size, int rank)
    : failure_(failure), size_(size), rank_(rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::lock_guard lock(mutex_);
  try {
    check_nccl(failure_, ncclCommInitRankConfig(&comm_, size, id, rank, &config),
               "connect the ranks");
    wait_while_in_progress("connect the ranks");
  } catch (...) {
    if (comm_) ncclCommAbort(comm_);
    throw;
  }
}

NcclComm::~NcclComm() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  try {
    check_nccl(failure_, ncclCommFinalize(comm_), "end");
    wait_while_in_progress("end");
    ncclCommDestroy(comm_);
  } catch (const Error& error) {
    failure_.set(error);
    ncclCommAbort(comm_);
  }
}

void NcclComm::call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& body) {
  const std::lock_guard lock(mutex_);
  failure_.check();
  check_nccl(failure_, body(comm_), what);
  wait_while_in_progress(what);
}

ncclResult_t NcclComm::state() {
  // If another thread holds the lock, it sees the error itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  ncclResult_t state = ncclSuccess;
  if (lock && comm_) ncclCommGetAsyncError(comm_, &state);
  return state;
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

void NcclComm::wait_while_in_progress(std::string_view what) {
  WaitedTime waited;
  constexpr double pause_s = 20e-6;
  while (true) {
    ncclResult_t state = ncclSuccess;
    check_nccl(failure_, ncclCommGetAsyncError(comm_, &state), what);
    check_nccl(failure_, state, what);
    if (state == ncclSuccess) return;
    failure_.check();
    if (waited.look() > failure_.timeout_s())
      throw Error(ErrorKind::timeout,
                  fmt::format("NCCL could not {} in {} s", what, failure_.timeout_s()),
                  failure_.context(
                      "raise --timeout if it is only slow; NCCL_DEBUG=INFO shows what it does"));
    sleep_for(pause_s);
  }
}

}  // namespace lockstep
