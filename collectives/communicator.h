// Everything an algorithm uses: a group of ranks, messages between them, and reductions of slices.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/device.h"
#include "collectives/base/trace.h"
#include "collectives/observer.h"
#include "collectives/transport/transport.h"

namespace lockstep {

struct Tuning;

// Records of one rank, shared by its communicators. Each may be null.
struct RankRecords {
  Ledger* ledger = nullptr;
  Trace* trace = nullptr;
  const Tuning* tuning = nullptr;
  CollectiveObserver* observer = nullptr;
};

// Used by one thread at a time. A second thread of the rank needs a duplicate().
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Transport> transport, RankRecords records = {},
                        int track = 0);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // How many consecutive ranks share a node; 0 if nodes differ in size or ranks are not
  // consecutive.
  int ranks_per_node() const { return transport_->ranks_per_node(); }
  int right() const { return (rank() + 1) % size(); }
  int left() const { return (rank() + size() - 1) % size(); }

  // Start a message. The data must live until wait(). Messages between two ranks keep their order.
  // `number`: the message's index under this label, on both sides; lets them detect that one side
  // skipped a message.
  static constexpr std::int64_t unnumbered = -1;
  Request isend(Slice data, int to, std::int64_t number = unnumbered);
  Request irecv(Slice data, int from, std::int64_t number = unnumbered);
  // The same, but wait() makes growing = growing (op) the message.
  Request irecv_reduce(Slice growing, int from, ReduceOp op, std::int64_t number = unnumbered);
  // While the window lives, its sender may write the message that is `ahead` messages after the
  // next one from `from` directly to `data`. Receive it there like any other message.
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) {
    return transport_->open_window(data, from, ahead);
  }
  void send(Slice data, int to) { isend(data, to)->wait(); }
  void recv(Slice data, int from, std::int64_t number = unnumbered) {
    irecv(data, from, number)->wait();
  }
  void recv_reduce(Slice growing, int from, ReduceOp op, std::int64_t number = unnumbered) {
    irecv_reduce(growing, from, op, number)->wait();
  }
  // The index of the receive whose message arrives first. `from` are the senders. See Transport.
  std::size_t wait_any(std::span<const Request> receives, std::span<const int> from) {
    return transport_->wait_any(message_call({}), receives, from);
  }
  void send_recv(Slice leaving, int to, Slice arriving, int from);
  // growing = growing (op) the message from `from`, while `leaving` goes to `to`.
  void send_recv_reduce(Slice leaving, int to, Slice growing, int from, ReduceOp op);

  // For ranks that share memory: shows all ranks the data and the memory for their result, waits
  // until all have arrived, and returns all ranks' slices. They are valid until withdraw().
  SharedMemory::Shown rendezvous(Slice from, Slice into) {
    return transport_->shared_memory()->rendezvous(message_call(from), from, into);
  }
  // With the same slices: waits until all ranks are done with them.
  void withdraw(Slice from, Slice into) {
    transport_->shared_memory()->withdraw(message_call(from), from, into);
  }
  // Shows a copy of `data`, of at most SharedMemory::copied_bytes. The caller may overwrite `data`
  // at once.
  std::span<const Slice> rendezvous_with_copy(Slice data) {
    return transport_->shared_memory()->rendezvous_with_copy(message_call(data), data);
  }

  void copy(Slice into, Slice from) { into.device->copy(into, from); }
  void reduce(Slice into, Slice from, ReduceOp op) { into.device->reduce(into, from, op); }
  // Completes an average: divides the sum `data` by the number of ranks. Does nothing for other
  // reductions.
  void complete(Slice data, ReduceOp op) {
    if (op == ReduceOp::avg) data.device->divide(data, size());
  }
  // Scratch of `count` elements with the type and device of `like`, charged as communication.
  Memory scratch(Slice like, Count count);

  // The same ranks with separate messages, for another thread of the rank. Every rank calls it in
  // the same order. `track` is its track in the trace.
  Communicator duplicate(int track);
  // Two communicators, one for each of two threads of this rank, in one group of 2 size() ends. The
  // threads can talk to those of other ranks: see Transport. Their tracks in the trace are `track`
  // and `track + 1`.
  std::array<Communicator, 2> two_ends(int track);
  // Runs `body` in a background thread of this rank, which needs its own communicator. On the
  // ledger's device its work starts after the work that this thread has enqueued; the thread that
  // destroys the task continues after the work of `body`.
  std::unique_ptr<Concurrency::Task> start_thread(std::function<void()> body);
  // The ranks `members` of this group, numbered in that order. Each member calls it with the same
  // list. Sends nothing.
  std::unique_ptr<Communicator> subgroup(std::span<const int> members);

  // From now on `observer` observes the collectives of this communicator, and of those made from
  // it. Null: ends this.
  void observe(CollectiveObserver* observer) { records_.observer = observer; }
  // Tells the observer, if there is one, that messages outside a collective have the effect of this
  // operation. See CollectiveObserver.
  void announce(Operation operation, Slice from, Slice into) {
    if (records_.observer) records_.observer->announce(group(), operation, from, into);
  }
  // This group's name for observers.
  const void* group() const { return transport_.get(); }

  // The label under which traffic is counted from now on. Empty: the operation's name.
  void set_label(std::string label) { label_ = std::move(label); }
  const std::string& label() const { return label_; }

  // Whether the other ranks exist: see launch_alone().
  bool has_peers() const { return transport_->capabilities().has_peers; }
  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  RankRecords records() const { return records_; }
  int track() const { return track_; }

 private:
  friend class CollectiveCall;
  Call message_call(Slice data, std::int64_t number = unnumbered) const;
  void check_peer(int peer) const;
  // Returns the transport of a subgroup, and tells the observer of it.
  std::unique_ptr<Transport> made_group(std::span<const int> members);

  // What every message reads comes first.
  std::unique_ptr<Transport> transport_;
  int rank_, size_;  // cached: decorators make the call slow
  bool in_collective_ = false;
  Call call_{};
  RankRecords records_;
  int track_;
  std::string label_;
  std::int64_t next_sequence_ = 0;
};

// A collective operation from its first to its last message. While it lives, every message carries
// its signature.
class CollectiveCall {
 public:
  CollectiveCall(Communicator& comm, Operation operation, std::string_view algorithm, Slice data,
                 ReduceOp op = ReduceOp::sum, int root = -1);
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall&) = delete;

 private:
  Communicator& comm_;
  Trace::Span span_;
};

}  // namespace lockstep
