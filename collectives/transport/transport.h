// The contract between algorithms and what moves bytes: one rank's end of a group of ranks.
//
// A transport sends and receives messages. Everything else it can do is a capability: a small
// interface of its own, in a header of its own. A decorator (decorator.h) offers the capabilities
// of the transport inside it and replaces those that it changes.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/slice.h"
#include "collectives/transport/concurrency.h"
#include "collectives/transport/failure_board.h"
#include "collectives/transport/network.h"
#include "collectives/transport/rank_clock.h"
#include "collectives/transport/receive_windows.h"
#include "collectives/transport/shared_memory.h"
#include "collectives/transport/signature.h"
#include "collectives/transport/vendor_collectives.h"

namespace lockstep {

// A message under way. Destroyed unfinished, it is cancelled: nothing touches its memory
// afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Returns when the memory may be used again (send) or holds the data (receive). Throws Error on a
  // mismatch, on a lost rank, and past the deadline.
  virtual void wait() = 0;
  // Of a receive: the arrival time of its message on this rank's clock; nothing while that is not
  // known. With a real clock it is known once the message is there.
  virtual std::optional<double> arrives_at() { return std::nullopt; }
};
using Request = std::unique_ptr<Transfer>;

// What a transport offers besides messages. The objects live as long as the transport.
struct Capabilities {
  // Every transport has these.
  RankClock* clock = nullptr;
  FailureBoard* failures = nullptr;
  Network* network = nullptr;
  Concurrency* concurrency = &threads_concurrency();
  // Null where the transport has no such thing.
  OperationBoard* operations = nullptr;
  SharedMemory* shared_memory = nullptr;
  ReceiveWindows* windows = nullptr;
  VendorCollectives* vendor = nullptr;
};

class Transport;
using TwoEnds = std::array<std::unique_ptr<Transport>, 2>;

// Messages from one rank to another arrive in the order in which they were sent.
//
// Used by one thread at a time. Several threads of a rank use a subgroup of all ranks each, or, to
// reach each other, the two ends of a group.
class Transport {
 public:
  explicit Transport(const Capabilities& capabilities) : capabilities_(capabilities) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts a message. Never waits for the receiver (else 1F1B deadlocks). The caller keeps `data`,
  // and keeps it unchanged, until wait() returns. A receive writes to its memory only in wait(), so
  // several may share it.
  virtual Request isend(const Call& call, Slice data, int to) = 0;
  virtual Request irecv(const Call& call, Slice data, int from) = 0;
  // The same, but wait() makes growing = growing (op) the message. Needs no scratch where ranks
  // share memory.
  virtual Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) = 0;
  // isend, irecv, and the wait for both. The peers of both messages make the same call, so a
  // transport may cut the messages into pieces.
  virtual void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) {
    const Request sending = isend(call, leaving, to);
    irecv(call, arriving, from)->wait();
    sending->wait();
  }
  // The same with irecv_reduce.
  virtual void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                                ReduceOp op) {
    const Request sending = isend(call, leaving, to);
    irecv_reduce(call, growing, from, op)->wait();
    sending->wait();
  }

  // Waits until the message of one of `receives` has come, and returns its index: under a virtual
  // clock that of the earliest, else of the first in the list. `from` are their senders. Throws
  // Error (lost_rank) when none has come and one of the senders left or died; it names that rank,
  // and the others may be waited for again.
  virtual std::size_t wait_any(const Call& call, std::span<const Request> receives,
                               std::span<const int> from) = 0;

  // A group of the ranks `members` (ranks of this group, ascending in the new one), called by each
  // of them in the same order. Its messages never mix with this group's.
  virtual std::unique_ptr<Transport> subgroup(std::span<const int> members) = 0;
  // A group of 2 size() ends, called by every rank in the same order: each rank holds the ends
  // number rank() and size() + rank(), for one thread each. Messages between the two ends of a rank
  // do not leave it: they cost nothing in virtual time and are not counted. Errors name the rank,
  // whichever of its ends they are about.
  virtual TwoEnds two_ends() = 0;

  const Capabilities& capabilities() const { return capabilities_; }

  // Short forms. See RankClock,
  double now_seconds() const { return capabilities_.clock->now_seconds(); }
  double about_now_seconds() const { return capabilities_.clock->about_now_seconds(); }
  void pass(double seconds) { capabilities_.clock->pass(seconds); }
  void align() { capabilities_.clock->align(); }
  // OperationBoard,
  void enter(const Call& call) {
    if (capabilities_.operations) capabilities_.operations->enter(call);
  }
  void leave() {
    if (capabilities_.operations) capabilities_.operations->leave();
  }
  // FailureBoard,
  bool abort(const std::exception& cause) { return capabilities_.failures->abort(cause); }
  void depart() { capabilities_.failures->depart(); }
  void abandon() { capabilities_.failures->abandon(); }
  // Network,
  int ranks_per_node() const { return capabilities_.network->ranks_per_node(); }
  LinkModel links() const { return capabilities_.network->links(); }
  std::vector<std::string> hindrances() const { return capabilities_.network->hindrances(); }
  // ReceiveWindows,
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) {
    return capabilities_.windows ? capabilities_.windows->open_window(data, from, ahead) : nullptr;
  }
  // and the others.
  Concurrency& concurrency() { return *capabilities_.concurrency; }
  SharedMemory* shared_memory() { return capabilities_.shared_memory; }
  VendorCollectives* vendor() { return capabilities_.vendor; }

 protected:
  // Changed only by constructors: who holds the transport may keep what it offers.
  Capabilities capabilities_;
};

}  // namespace lockstep
