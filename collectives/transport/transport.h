// The interface between algorithms and message passing: one rank's end of a group of ranks.
//
// A transport sends and receives messages. Anything else it offers is a capability: a small
// interface with its own header. A decorator (decorator.h) offers the capabilities of its inner
// transport and replaces those that it changes.
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
#include "collectives/transport/wait_times.h"

namespace lockstep {

// A message in flight. Destroyed unfinished, it is cancelled, and nothing touches its memory
// afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Returns when the memory may be reused (send) or holds the data (receive). Throws Error on a
  // mismatch, on a lost rank, and past the deadline.
  virtual void wait() = 0;
  // For a receive: the arrival time of its message on this rank's clock; empty while it is not
  // known. In real time it is known once the message has arrived.
  virtual std::optional<double> arrives_at() { return std::nullopt; }
};
using Request = std::unique_ptr<Transfer>;

// What a transport offers in addition to messages. The objects live as long as the transport.
struct Capabilities {
  // Every transport has these.
  RankClock* clock = nullptr;
  FailureBoard* failures = nullptr;
  Network* network = nullptr;
  Concurrency* concurrency = &threads_concurrency();
  // Null if the transport does not have it.
  OperationBoard* operations = nullptr;
  SharedMemory* shared_memory = nullptr;
  ReceiveWindows* windows = nullptr;
  VendorCollectives* vendor = nullptr;
  WaitTimes* waits = nullptr;  // this rank's, in all groups of its world
  bool has_peers = true;       // otherwise all that a rank receives is zero
};

class Transport;
using TwoEnds = std::array<std::unique_ptr<Transport>, 2>;

// Messages from one rank to another arrive in the order in which they were sent.
//
// Used by one thread at a time. For several threads of a rank, give each a subgroup of all ranks.
// If the threads talk to each other, use two_ends().
class Transport {
 public:
  explicit Transport(const Capabilities& capabilities) : capabilities_(capabilities) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts a message. Never waits for the receiver (otherwise 1F1B deadlocks). The caller keeps
  // `data` unchanged until wait() returns. A receive writes to its memory only in wait(), so
  // several receives may share it.
  virtual Request isend(const Call& call, Slice data, int to) = 0;
  virtual Request irecv(const Call& call, Slice data, int from) = 0;
  // The same, but wait() makes growing = growing (op) the message. Needs no scratch if ranks share
  // memory.
  virtual Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) = 0;
  // isend and irecv, and waits for both. The peers of both messages make the same call, so a
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

  // Waits until the message of one of `receives` has arrived, and returns its index: in virtual
  // time the earliest message, otherwise the first in the list. `from` are the senders. Throws
  // Error (lost_rank) if none has arrived and a sender left or died. It names that rank; the caller
  // may continue to wait for the others.
  virtual std::size_t wait_any(const Call& call, std::span<const Request> receives,
                               std::span<const int> from) = 0;

  // A group of the ranks `members` (ranks of this group, in the order of the new one). All members
  // call it in the same order. Its messages never mix with this group's.
  virtual std::unique_ptr<Transport> subgroup(std::span<const int> members) = 0;
  // A group of 2 size() ends; collective. Each rank holds the ends rank() and size() + rank(), for
  // one thread each. Messages between the two ends of a rank do not leave it: they cost nothing in
  // virtual time and are not counted. Errors name the rank, not the end.
  virtual TwoEnds two_ends() = 0;

  const Capabilities& capabilities() const { return capabilities_; }

  // Shortcuts for the capabilities. See RankClock,
  double now_seconds() const { return capabilities_.clock->now_seconds(); }
  double about_now_seconds() const { return capabilities_.clock->about_now_seconds(); }
  void advance(double seconds) { capabilities_.clock->advance(seconds); }
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
  WaitTimes* waits() const { return capabilities_.waits; }

 protected:
  // Changed only by constructors: users of the transport may keep its capabilities.
  Capabilities capabilities_;
};

}  // namespace lockstep
