// The contract between algorithms and what moves bytes: one rank's end of a group of ranks.
//
// Messages from one rank to another arrive in the order they were sent. Every message carries the
// signature of the operation it belongs to, so ranks that disagree find out from the first message
// between them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/links.h"
#include "collectives/base/slice.h"

namespace lockstep {

enum class Operation : std::uint8_t {
  send_recv,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
};
std::string_view name_of(Operation operation);

// What a rank is doing. Travels with each message; plain bytes, so that it fits a header and shared
// memory.
struct Signature {
  std::int64_t sequence = -1;  // of the operation on this communicator; -1 between operations
  Count count = 0;             // elements of the whole buffer; for send_recv, of the message
  std::int32_t root = -1;
  Operation operation = Operation::send_recv;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t reserved = 0;
  std::array<char, 24> algorithm = {};  // its name, ended by zeros

  bool operator==(const Signature&) const = default;
  // "all_reduce/ring #6 of 1024 f32, sum"
  std::string text() const;
};

// A signature and the name under which this rank counts its traffic.
struct Call {
  Signature signature;
  std::string_view label;
};

// A message on its way. Destroyed unfinished, it is cancelled: nothing touches its memory
// afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Returns when the memory may be used again (send) or holds the data (receive). Throws Error on a
  // mismatch, on a lost rank, and past the deadline.
  virtual void wait() = 0;
  // Of a receive: when its message comes, on this rank's clock; nothing while that is not known. A
  // real clock knows it of those that are there.
  virtual std::optional<double> arrives_at() { return std::nullopt; }
};
using Request = std::unique_ptr<Transfer>;

// While it lives, memory that the sender of a message may write it to.
class Window {
 public:
  virtual ~Window() = default;
};

// Collectives of the library underneath, where it has them; measured beside ours as `vendor`.
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;
  virtual std::string_view library() const = 0;
  // "" or what there is not: "no bf16". Asked before run() with `count` elements in all.
  virtual std::string lacks(Operation operation, DType dtype, Count count) const = 0;
  // As ours: in place on `data`, but all_to_all and send_recv, which read it and write `out`, and
  // all_reduce where there is an `out`. A reduction to a root leaves an average undivided.
  virtual void run(Operation operation, Slice data, Slice out, ReduceOp op, int root) = 0;
};

// Where ranks share an address space, each can look at the others' data.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // By rank: the data that each shows, and where it takes the result.
  struct Shown {
    std::span<const Slice> from, into;
  };
  // Shows `from` and `into`, which is like it in all but its place, to the other ranks, waits until
  // every rank has come here, and returns what all show: good until the second meeting after this
  // one.
  virtual Shown meet(const Call& call, Slice from, Slice into) = 0;
  // Shows copies, which stay as they are until the second meeting after this one, whatever becomes
  // of `data`.
  static constexpr Count copied_bytes = 4096;
  virtual std::span<const Slice> meet_with_copy(const Call& call, Slice data) = 0;
};

// How a rank runs a second line of execution beside its program: threads, or what stands for them
// under a virtual clock.
class Concurrency {
 public:
  // Lines wait here for what others do, under a mutex that all of them hold when they look.
  class Condition {
   public:
    virtual ~Condition() = default;
    virtual void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) = 0;
    virtual void notify_all() = 0;
  };
  // Destroyed, it waits for its end.
  class Task {
   public:
    virtual ~Task() = default;
  };

  virtual ~Concurrency() = default;
  virtual std::unique_ptr<Condition> condition() = 0;
  virtual std::unique_ptr<Task> start(std::function<void()> body) = 0;
  // What this line does next is seen by others at its own time: under a virtual clock everything
  // earlier has happened when this returns.
  virtual void catch_up() = 0;
};
Concurrency& threads_concurrency();

// The machine's clock: seconds since it started.
double steady_seconds();
double about_steady_seconds();
// Sleeps.
void sleep_for(double seconds);

class Transport;
using TwoEnds = std::array<std::unique_ptr<Transport>, 2>;

// Used by one thread at a time. Several threads of a rank use a subgroup of all ranks each, or, to
// reach each other, the two ends of a group.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Says what this rank does from now on; leave() ends it. A rank that waits compares it with what
  // its peers do.
  virtual void enter(const Call& call) = 0;
  virtual void leave() = 0;

  // Starts a message. Never waits for the receiver (else 1F1B deadlocks). `data` stays untouched
  // until wait(). A receive writes to its memory in wait() alone, so several may share it.
  virtual Request isend(const Call& call, Slice data, int to) = 0;
  virtual Request irecv(const Call& call, Slice data, int from) = 0;
  // The same, but wait() makes growing = growing (op) the message. No scratch where ranks share
  // memory.
  virtual Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) = 0;
  // Says where a message will be received: the one `ahead` messages after the next from `from`.
  // Where ranks share memory, the sender then writes it there itself, if it sends it after this:
  // faster than a receiver that comes for it when it is there. The irecv names the same
  // memory; it and isend do what they do without a window, and null is as good as one.
  virtual std::unique_ptr<Window> open_window(Slice, int, std::int64_t) { return nullptr; }
  // isend, irecv, and the wait for both. The other ends of the two messages are in such a call,
  // too: a transport may cut what they pass.
  virtual void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) {
    const Request sending = isend(call, leaving, to);
    irecv(call, arriving, from)->wait();
    sending->wait();
  }
  // The same with irecv_reduce.
  virtual void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                                ReduceOp op) = 0;

  // Waits until the message of one of `receives` has come, and returns its place: under a virtual
  // clock that of the first in time, else of the first in the list. `from` are their senders.
  // Throws Error (lost_rank) when none has come and one of them left or died; it names the rank,
  // and the others may be waited for again.
  virtual std::size_t wait_any(const Call& call, std::span<const Request> receives,
                               std::span<const int> from) = 0;

  // A group of the ranks `members` (ranks of this group, ascending in the new one), called by each
  // of them in the same order. Its messages never mix with this group's.
  virtual std::unique_ptr<Transport> subgroup(std::span<const int> members) = 0;
  // A group of 2 size() ends, called by every rank in the same order: a rank holds those of the
  // numbers rank() and size() + rank(), each for a line of execution of its own. What passes
  // between the two of a rank does not leave it: it costs nothing in virtual time, and is not
  // counted. Errors name the rank, whichever end they speak of.
  virtual TwoEnds two_ends() = 0;

  // Stops the world: every rank blocked in a call wakes and names this rank and `cause`. True if
  // nobody failed before.
  virtual bool abort(const std::exception& cause) = 0;
  // This rank leaves the group, and the others go on: only who waits for it is told so.
  virtual void depart() = 0;
  // This rank gives up: waits of its own other threads throw at once. abort() follows with the
  // reason.
  virtual void abandon() = 0;

  // Consecutive ranks that share a node; 0 if nodes hold different numbers or ranks are mixed.
  virtual int ranks_per_node() const = 0;
  // What messages cost here, roughly: for choosing between algorithms. Exact under a virtual clock.
  virtual LinkModel links() const {
    constexpr Link usual{.alpha_s = 1e-6, .beta_s_per_byte = 1e-10};
    return {.inside = usual, .between = usual, .ranks_per_node = ranks_per_node()};
  }
  virtual double now_seconds() const = 0;
  // The same clock to a few milliseconds, for a fraction of the price.
  virtual double about_now_seconds() const { return now_seconds(); }
  // Lets that time pass on this rank's clock.
  virtual void pass(double seconds) = 0;
  // Under a virtual clock, waits until every rank has come, and all go on at one time; costs
  // nothing. On a real clock there is no such thing, and nothing happens.
  virtual void align() {}
  virtual Concurrency& concurrency() { return threads_concurrency(); }
  virtual SharedMemory* shared_memory() { return nullptr; }
  virtual VendorCollectives* vendor() { return nullptr; }
  // What in this system makes messages slower than they could be, in words.
  virtual std::vector<std::string> hindrances() const { return {}; }
};

}  // namespace lockstep
