// All that an algorithm sees: a group of ranks, and moving and combining slices between them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/device.h"
#include "collectives/base/trace.h"
#include "collectives/transport/transport.h"

namespace lockstep {

struct Tuning;

// What belongs to one rank, whichever communicators it uses. Each may be absent.
struct RankRecords {
  Ledger* ledger = nullptr;
  Trace* trace = nullptr;
  const Tuning* tuning = nullptr;
};

// Used by one thread at a time; a second thread of the rank takes a duplicate().
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Transport> transport, RankRecords records = {},
                        int track = 0);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  // Consecutive ranks that share a node; 0 if nodes hold different numbers or ranks are mixed.
  int ranks_per_node() const { return transport_->ranks_per_node(); }
  int right() const { return (rank() + 1) % size(); }
  int left() const { return (rank() + size() - 1) % size(); }

  // Start a message; the data must stay until wait(). Messages between two ranks keep their order.
  Request isend(Slice data, int to);
  Request irecv(Slice data, int from);
  // The same, but wait() makes growing = growing (op) the message.
  Request irecv_reduce(Slice growing, int from, ReduceOp op);
  // While it lives, the message that comes from `from`, `ahead` messages after the next, may be
  // written to `data` by its sender; it is received there as any other.
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) {
    return transport_->open_window(data, from, ahead);
  }
  void send(Slice data, int to) { isend(data, to)->wait(); }
  void recv(Slice data, int from) { irecv(data, from)->wait(); }
  void recv_reduce(Slice growing, int from, ReduceOp op) {
    irecv_reduce(growing, from, op)->wait();
  }
  // The place of the receive whose message comes first; `from` are the senders. See Transport.
  std::size_t wait_any(std::span<const Request> receives, std::span<const int> from) {
    return transport_->wait_any(message_call({}), receives, from);
  }
  void send_recv(Slice leaving, int to, Slice arriving, int from);
  // growing = growing (op) what comes from `from`, while `leaving` goes to `to`.
  void send_recv_reduce(Slice leaving, int to, Slice growing, int from, ReduceOp op);

  // Where ranks share an address space: shows all of them data and the place of their result, waits
  // until all have come, and returns what each shows; good until the next meeting.
  SharedMemory::Shown meet(Slice from, Slice into) {
    return transport_->shared_memory()->meet(message_call(from), from, into);
  }
  // Shows a copy of `data`, of at most SharedMemory::copied_bytes: the rank may go on and write to
  // its data.
  std::span<const Slice> meet_with_copy(Slice data) {
    return transport_->shared_memory()->meet_with_copy(message_call(data), data);
  }

  void copy(Slice into, Slice from) { into.device->copy(into, from); }
  void reduce(Slice into, Slice from, ReduceOp op) { into.device->reduce(into, from, op); }
  // Ends an average: divides the complete sum `data` by the number of ranks. Nothing for other
  // reductions.
  void complete(Slice data, ReduceOp op) {
    if (op == ReduceOp::avg) data.device->divide(data, size());
  }
  // Scratch of `count` elements of the type and on the device of `like`, charged as communication.
  Memory scratch(Slice like, Count count);

  // The same ranks with messages of their own, for a second thread; every rank calls it in the same
  // order. `track` numbers its line in the trace.
  Communicator duplicate(int track);
  // Two communicators of which every rank has an end each in one group of 2 size(), for two threads
  // of the rank that talk to those of others: see Transport. Their lines in the trace are `track`
  // and `track + 1`.
  std::array<Communicator, 2> two_ends(int track);
  // A second line of execution of this rank, which runs `body` on a communicator of its own. On the
  // ledger's device it begins after what this line has enqueued, and who ends the task goes on
  // after what it has enqueued.
  std::unique_ptr<Concurrency::Task> start_line(std::function<void()> body);
  // The ranks `members` of this group, numbered in that order; each of them calls it with the same
  // list, which this rank is in. Sends nothing.
  std::unique_ptr<Communicator> subgroup(std::span<const int> members);
  // The ranks that pass the same color >= 0, ordered by (key, rank). Every rank calls it; with a
  // negative color a rank gets no communicator.
  std::unique_ptr<Communicator> split(int color, int key);

  // The name under which traffic is counted from now on; empty: the operation's name.
  void set_label(std::string label) { label_ = std::move(label); }

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  RankRecords records() const { return records_; }
  int track() const { return track_; }

 private:
  friend class CollectiveCall;
  Call message_call(Slice data) const;
  void check_peer(int peer) const;

  std::unique_ptr<Transport> transport_;
  RankRecords records_;
  int track_;
  std::string label_;
  std::int64_t next_sequence_ = 0;
  bool in_collective_ = false;
  Call call_{};
};

// One collective operation from its first message to its last. While it lives, every message
// carries its signature.
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
