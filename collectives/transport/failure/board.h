// The board: the operation that each rank of a group is in, and why the world was stopped.
//
// It lies in memory that the ranks share (of this process, or a segment between processes of one
// host), holds only atomics, and is valid when zeroed. All waiting goes through wait(). It returns
// when the condition holds. It throws when the world was stopped, when a peer is in a different
// operation, has left or died, and past the deadline. The error then names the rank that keeps the
// others waiting: one whose heartbeat has stopped, otherwise one that does not wait itself.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/failure/failure_report.h"
#include "collectives/transport/failure/waited_time.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// The first failure in the world.
struct AbortNotice {
  std::atomic<std::int32_t> claimed;  // by rank + 1; 0: unclaimed
  std::atomic<std::uint32_t> published;
  ErrorKind kind;
  std::int32_t culprit;  // the rank that caused it, if known; else -1
  std::array<char, 2048> text;

  bool raised() const { return published.load(std::memory_order_acquire) != 0; }
  int rank() const { return claimed.load() - 1; }
  // True if world rank `failed_rank` is the first to fail. All ranks then report its error.
  bool claim(int failed_rank);
  // Claims the notice and publishes the cause.
  bool raise(int failed_rank, const std::exception& cause);
  // For the claimant of the notice.
  void publish(ErrorKind of_kind, int by, std::string_view what);
};

// An operation or message that a rank has announced.
struct Announced {
  static constexpr int words = static_cast<int>(sizeof(Signature) / 8);
  std::atomic<std::uint32_t> version;  // odd during a write; 0: never written
  std::array<std::atomic<std::uint64_t>, words> signature;

  void write(const Signature& announced);
  Signature read() const;
};

// The ranks for which one rank waits, in all its groups: one entry per waiting thread.
struct alignas(64) RankWaits {
  struct Entry {
    std::atomic<std::int32_t> waiting_for;   // world rank + 1; 0: free
    std::atomic<std::int64_t> heartbeat_us;  // the thread's last heartbeat, on the steady clock
    Announced call;                          // the call in which it waits

    void beat(std::chrono::steady_clock::time_point now) {
      heartbeat_us.store(microseconds(now), std::memory_order_relaxed);
    }
    double silent_s(std::chrono::steady_clock::time_point now) const {
      return static_cast<double>(microseconds(now) - heartbeat_us.load()) * 1e-6;
    }
    static std::int64_t microseconds(std::chrono::steady_clock::time_point time) {
      return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
    }
  };
  std::array<Entry, 4> entries;
};

// State that all groups of a world share. `waits` is indexed by world rank.
struct WorldBoard {
  AbortNotice* notice;
  std::span<RankWaits> waits;
};

// One rank's entries on the board, on separate cache lines; only that rank writes them.
struct alignas(64) BoardSlot {
  // A rank may be several operations ahead of another rank, which must still find the older
  // operations.
  static constexpr int remembered = 4;

  std::atomic<std::int32_t> waiting_for;  // peer + 1; 0 when not waiting
  std::atomic<std::int32_t> waits_entry;  // its entry of RankWaits + 1; 0: none
  std::atomic<RankState::Where> where;
  std::atomic<std::int32_t> process;  // id of the rank's process, if each rank is one
  std::atomic<std::int64_t> newest;   // index of the last entry written
  std::array<Announced, remembered> entries;
};

class Board {
 public:
  // `world_ranks[i]` is the world rank of this group's rank i. Errors name world ranks.
  Board(BoardSlot* slots, WorldBoard world, std::vector<int> world_ranks, double timeout_s,
        std::string transport);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[rank]; }
  // For a group in which every rank has two ends.
  std::vector<int> world_ranks_twice() const {
    std::vector<int> twice = world_ranks_;
    twice.insert(twice.end(), world_ranks_.begin(), world_ranks_.end());
    return twice;
  }
  const WorldBoard& world() const { return world_; }
  AbortNotice& notice() const { return *world_.notice; }
  double timeout_s() const { return timeout_s_; }

  void enter(int rank, const Signature& signature);
  void leave(int rank) {
    slots_[rank].where.store(RankState::Where::outside, std::memory_order_release);
  }
  void end(int rank) {
    slots_[rank].where.store(RankState::Where::ended, std::memory_order_release);
  }
  bool has_ended(int rank) const {
    return slots_[rank].where.load(std::memory_order_acquire) == RankState::Where::ended;
  }
  bool all_ended() const;
  // `check` returns "" or the fault of a peer's process. Called while a rank waits for that peer.
  void set_health_check(std::function<std::string(int rank)> check) { health_ = std::move(check); }
  // This board shows only this process: `network_state` describes the network to the others.
  void set_distant(std::function<std::string()> network_state) {
    network_state_ = std::move(network_state);
  }
  // `check` returns whether a peer's process is stopped, as by SIGSTOP.
  void set_stopped_check(std::function<bool(int rank)> check) { stopped_ = std::move(check); }

  // Blocks `rank` until ready() is true. It waits for something from one of `peers`. `pause()`
  // yields the processor for a bounded time. The caller may have spun before.
  template <typename Ready, typename Pause>
  void wait(int rank, std::span<const int> peers, const Call& call, Ready ready, Pause pause) {
    const Waiting waiting(*this, rank, peers.front(), call);
    WaitedTime waited;
    std::optional<double> faulty_since_s;
    while (!ready()) {
      const auto now = WaitedTime::Clock::now();
      waiting.beat(now);
      examine(rank, peers, call, waited.look(now), faulty_since_s);
      pause();
    }
  }

  // Blocks `rank`, which has ended, until ready() is true: then all ranks have ended. Throws like
  // wait(), and if the ranks have not made the same number of collective calls. `sees_all`: whether
  // the board shows all ranks, not only those of this process.
  template <typename Ready, typename Pause>
  void wait_for_ends(int rank, bool sees_all, Ready ready, Pause pause) const {
    for (WaitedTime waited; !ready(); pause()) check_ends(rank, sees_all, waited.look());
    if (sees_all) check_last_calls(rank);
  }

  // Throws if `got`, the signature of a message from `peer`, differs from this rank's operation.
  void match(int rank, int peer, const Call& call, const Signature& got) const {
    if (got != call.signature) throw_mismatch(rank, peer, call, got);
  }
  // Throws if a message of the size of `got` arrives at a receive into `into`.
  void match_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
    if (got.count != into.count || got.dtype != into.dtype) throw_size(rank, peer, call, into, got);
  }
  // Throws the reason why no message will come from `peers`.
  [[noreturn]] void give_up(int rank, std::span<const int> peers, const Call& call) const;
  // Throws if one of `peers` has left the group without sending.
  void check_departed(int rank, std::span<const int> peers, const Call& call) const;
  // Throws the world's failure, if there is one.
  void check_notice(int rank, int peer, const Call& call) const {
    if (notice().raised()) throw_notice(rank, peer, call);
  }
  // Stops the world after a user's interrupt, with a failure report.
  void interrupt(std::string_view signal) const;
  // Which operation each rank is in, and who waits for whom.
  std::string failure_report() const;
  // An error's context, as far as this board knows it.
  ErrorContext context(int rank, int peer, const Call& call) const;

  // Shows on the board, while it lives, that a rank waits for `peer`.
  class Waiting {
   public:
    Waiting(const Board& board, int rank, int peer, const Call& call);
    // After a failed wait the entries stay: they show which rank was waited for.
    ~Waiting();
    Waiting(const Waiting&) = delete;
    // The rank's thread is running. A process that was stopped no longer calls it.
    void beat(std::chrono::steady_clock::time_point now) const;

   private:
    BoardSlot& slot_;
    RankWaits::Entry* entry_ = nullptr;
  };

 private:
  // `faulty_since_s`: the time of the wait at which a check first saw the fault of a peer.
  void examine(int rank, std::span<const int> peers, const Call& call, double waited_s,
               std::optional<double>& faulty_since_s) const;
  [[noreturn]] void throw_lost(int rank, int peer, const Call& call, std::string_view fault) const;
  [[noreturn]] void throw_mismatch(int rank, int peer, const Call& call,
                                   const Signature& got) const;
  [[noreturn]] void throw_notice(int rank, int peer, const Call& call) const;
  [[noreturn]] void throw_size(int rank, int peer, const Call& call, Slice into, Slice got) const;
  [[noreturn]] void throw_timeout(int rank, std::span<const int> peers, const Call& call,
                                  std::string_view what, std::string_view got,
                                  std::string_view advice) const;
  // The operation that a rank announced under that number; sequence -1 if it has not, or long ago.
  Signature announced(int rank, std::int64_t sequence) const;
  Signature last(int rank) const;
  void check_ends(int rank, bool sees_all, double waited_s) const;
  void check_last_calls(int rank) const;
  int culprit_of_wait(int rank, int peer) const;
  Signature awaited(int rank) const;
  std::string circle_of_waits(int rank) const;
  int culprit_of_mismatch(int rank, int peer, const Call& call, const Signature& got) const;

  BoardSlot* slots_;
  WorldBoard world_;
  std::vector<int> world_ranks_;
  double timeout_s_;
  std::string transport_;
  std::string among_;  // the ranks, for errors: thousands may fail at once; empty: all of the world
  std::function<std::string(int)> health_;
  std::function<bool(int)> stopped_;
  std::function<std::string()> network_state_;
};

}  // namespace lockstep
