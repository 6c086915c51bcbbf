// What all groups of one rank have in common: its card, its communicators, and what it lends.
//
// A message between two ranks is lent by its sender, and the receiver asks for it when it wants it:
// only then both enqueue, so no kernel waits on a card for a rank that has not come yet. The asking
// goes over the transport that started the world, and a thread of the lending rank answers; what is
// lent of the host's memory goes that way, too.
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
#include "collectives/transport/nccl/comm.h"
#include "collectives/transport/nccl/event.h"
#include "collectives/transport/transport.h"

namespace lockstep {

struct Ask;

// Data on their way to another rank.
struct Loan {
  std::int64_t number = 0;
  Slice data;
  CudaEvent written, read;
  bool answered = false;  // the host's memory has been read; on a card, `read` has been recorded
};

class NcclRank {
 public:
  // Every rank of the world calls it, with its end of the world.
  NcclRank(Transport& control, Device& card, double timeout_s);
  // Gives up what is enqueued, unless finish() came before.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;

  // Returns when everything that this rank enqueued between cards is done. Throws its failure.
  void finish();

  Device& card() { return card_; }
  Failure& failure() { return failure_; }
  // Where the calling thread enqueues.
  cudaStream_t stream();

  // Lends `data` as they are after what the calling thread has enqueued, of any device.
  std::shared_ptr<Loan> lend(Slice data);
  // What this thread enqueues from now on is done after the loan was read. Waits until it was asked
  // for; throws Error (timeout) past the deadline.
  void wait(Loan& loan, const Call& call, int to);
  // The loan ends without having been asked for.
  void take_back(const Loan& loan);
  // What the world's rank `from` has lent under that number arrives in `into`, of the same size,
  // and like it on a card or in the host's memory.
  void fetch(int from, std::int64_t number, Slice into);

  // A communicator of the ranks of `group`, each of which calls it.
  std::shared_ptr<NcclComm> connect(Transport& group);
  // What the calling thread has just enqueued on `stream` is to end within the world's time.
  void expect_end(cudaStream_t stream, std::string what);

 private:
  // From one rank of the world to this one, or the other way; made at the first message.
  struct Channel {
    std::mutex mutex;
    std::shared_ptr<NcclComm> comm;
    std::optional<CudaStream> stream;
  };
  struct Expected {
    CudaEvent event;
    double deadline;
    std::string what;
  };

  std::shared_ptr<NcclComm> make_comm(const ncclUniqueId& id, int size, int rank);
  std::shared_ptr<Loan> claim(std::int64_t number);
  void fetch_own(std::int64_t number, Slice into);
  void fetch_from_card(int from, std::int64_t number, Slice into);
  void fetch_from_host(int from, std::int64_t number, Slice into);
  void serve();
  void answer(int to, const Ask& ask);
  void send_from_card(int to, const Ask& ask, Loan& loan);
  void look();
  void look_at_comms();
  void look_at_expected();
  void fail(const Error& error);
  void use_card();

  Device& card_;
  const int card_number_;
  const int rank_, size_;
  Failure failure_;
  TwoEnds ends_;  // for asking, by any thread of the rank, and for answering
  std::mutex asking_;
  std::vector<Channel> from_, to_;

  std::mutex mutex_;  // of the rest
  std::condition_variable answered_;
  std::int64_t lent_ = 0;
  std::map<std::int64_t, std::shared_ptr<Loan>> loans_;
  std::vector<std::weak_ptr<NcclComm>> comms_;
  std::deque<Expected> expected_;

  std::atomic<bool> ends_service_ = false;
  std::jthread service_;
};

}  // namespace lockstep
