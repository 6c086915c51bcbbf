// State that all groups of one rank share: its GPU, its communicators, and the data it exposes.
//
// The sender of a message exposes its data. The receiver requests them when it needs them; only
// then both enqueue, so no kernel on a GPU waits for a rank that has not arrived yet. Requests go
// over the control, the transport that started the world; the sender's service thread answers them.
// Data in the host's memory also go over the control.
#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/failure/waited_time.h"
#include "collectives/transport/nccl/comm.h"
#include "collectives/transport/nccl/event.h"
#include "collectives/transport/transport.h"

namespace lockstep {

struct Ask;

// Data that another rank may fetch.
struct ExposedData {
  std::int64_t number = 0;
  Slice data;
  CudaEvent written, read;
  bool answered = false;  // the host's memory was read, or, on a GPU, `read` was recorded
};

class NcclRank {
 public:
  // Every rank of the world calls it, with its end of the control.
  NcclRank(Transport& control, Device& gpu, double timeout_s);
  // Aborts enqueued work if finish() was not called.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;

  // Returns when all work that this rank enqueued between GPUs is done. Throws its failure.
  void finish();

  Device& gpu() { return gpu_; }
  Failure& failure() { return failure_; }
  // The calling thread's stream.
  cudaStream_t stream();

  // Exposes `data`, on any device, as of the work that the calling thread has enqueued.
  std::shared_ptr<ExposedData> expose(Slice data);
  // Makes the calling thread's stream wait until the data were read. Blocks until the receiver has
  // requested them. Throws Error (timeout) past the deadline.
  void wait(ExposedData& exposed, const Call& call, int to);
  // Ends exposure of data that nobody requested.
  void withdraw(const ExposedData& exposed);
  // Copies data that world rank `from` exposes under that number to `into`. Both have the same size
  // and lie on GPUs or in the host's memory alike.
  void fetch(int from, std::int64_t number, Slice into);

  // A communicator of the ranks of `group`. Each of them calls it.
  std::shared_ptr<NcclComm> connect(Transport& group);
  // Expects that work just enqueued on `stream` ends within the world's timeout.
  void expect_end(cudaStream_t stream, std::string what);

 private:
  // From one world rank to this one, or back. Created at the first message.
  struct Channel {
    std::mutex mutex;
    std::shared_ptr<NcclComm> comm;
    std::optional<CudaStream> stream;
  };
  struct Expected {
    CudaEvent event;
    double deadline;  // on the clock `running_`
    std::string what;
  };

  std::shared_ptr<NcclComm> make_comm(const ncclUniqueId& id, int size, int rank);
  std::shared_ptr<ExposedData> claim(std::int64_t number);
  void fetch_own(std::int64_t number, Slice into);
  void fetch_from_gpu(int from, std::int64_t number, Slice into);
  void fetch_from_host(int from, std::int64_t number, Slice into);
  void serve();
  void answer(int to, const Ask& ask);
  void send_from_gpu(int to, const Ask& ask, ExposedData& exposed);
  void look();
  void look_at_comms();
  void look_at_expected();
  void fail(const Error& error);
  void use_gpu();

  Device& gpu_;
  const int gpu_number_;
  const int rank_, size_;
  Failure failure_;
  TwoEnds ends_;  // the first for requests, by any thread of the rank, the second for answers
  std::mutex asking_;
  std::vector<Channel> from_, to_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable answered_;
  std::int64_t next_exposed_ = 0;
  std::map<std::int64_t, std::shared_ptr<ExposedData>> exposed_;
  std::vector<std::weak_ptr<NcclComm>> comms_;
  std::deque<Expected> expected_;
  WaitedTime running_;

  std::atomic<bool> ends_service_ = false;
  std::jthread service_;
};

}  // namespace lockstep
