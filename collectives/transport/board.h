// The board: the operation that each rank of a group is in, and why the world was stopped.
//
// It lies in memory that the ranks share (of this process, or a segment between processes of one
// host), holds only atomics, and is valid when zeroed. All waiting goes through wait(). It returns
// when the condition holds. It throws when the world was stopped, when a peer is in another
// operation, has left or died, and past the deadline.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/failure_report.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// The first failure in the world.
struct AbortNotice {
  std::atomic<std::int32_t> claimed;  // by rank + 1; 0 by nobody
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
};

// One rank's entries on the board, on separate cache lines; only that rank writes them.
struct alignas(64) BoardSlot {
  // An operation that the rank has announced.
  struct Entry {
    static constexpr int words = static_cast<int>(sizeof(Signature) / 8);
    std::atomic<std::uint32_t> version;  // odd during a write; 0: never written
    std::array<std::atomic<std::uint64_t>, words> signature;
  };
  // A rank may be several operations ahead of another one, which must still find the older ones.
  static constexpr int remembered = 4;

  std::atomic<std::int32_t> waiting_for;  // peer + 1; 0 when not waiting
  std::atomic<RankState::Where> where;
  std::atomic<std::int32_t> process;  // id of the rank's process, if each rank is one
  std::atomic<std::int64_t> newest;   // index of the last entry written
  std::array<Entry, remembered> entries;
};

class Board {
 public:
  // `world_ranks[i]` is the world rank of this group's rank i. Errors name world ranks.
  Board(BoardSlot* slots, AbortNotice* notice, std::vector<int> world_ranks, double timeout_s,
        std::string transport);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[rank]; }
  // For a group in which every rank has two ends.
  std::vector<int> world_ranks_twice() const {
    std::vector<int> twice = world_ranks_;
    twice.insert(twice.end(), world_ranks_.begin(), world_ranks_.end());
    return twice;
  }
  AbortNotice& notice() { return *notice_; }
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

  // Blocks `rank` until ready() is true. It waits for something from one of `peers`. `pause()`
  // yields the processor for a bounded time. The caller may have spun before.
  template <typename Ready, typename Pause>
  void wait(int rank, std::span<const int> peers, const Call& call, Ready ready, Pause pause) {
    using Clock = std::chrono::steady_clock;
    const Waiting waiting(slots_[rank], peers.front());
    const auto start = Clock::now();
    while (!ready()) {
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      examine(rank, peers, call, waited);
      pause();
    }
  }

  // Throws if `got`, the signature of a message from `peer`, differs from this rank's operation.
  void match(int rank, int peer, const Call& call, const Signature& got) const {
    if (got != call.signature) throw_mismatch(rank, peer, call, got);
  }
  // Throws if a message of the size of `got` arrives at a receive into `into`.
  void match_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
    if (got.count != into.count || got.dtype != into.dtype) throw_size(rank, peer, call, into, got);
  }
  // Throws the reason why this rank waits for `peers` in vain.
  [[noreturn]] void give_up(int rank, std::span<const int> peers, const Call& call) const;
  // Throws if one of `peers` has left the group without sending.
  void check_departed(int rank, std::span<const int> peers, const Call& call) const;
  // Throws the world's failure, if there is one.
  void check_notice(int rank, int peer, const Call& call) const {
    if (notice_->raised()) throw_notice(rank, peer, call);
  }
  // Which operation each rank is in, and who waits for whom.
  std::string failure_report() const;
  // An error's context, as far as this board knows it.
  ErrorContext context(int rank, int peer, const Call& call) const;

  // Shows on the board, while it lives, that a rank waits for `peer`.
  class Waiting {
   public:
    Waiting(BoardSlot& slot, int peer) : slot_(slot) { show(peer + 1); }
    // After a failed wait the entry stays: it shows which rank was waited for.
    ~Waiting() {
      if (std::uncaught_exceptions() == 0) show(0);
    }
    Waiting(const Waiting&) = delete;

   private:
    void show(std::int32_t value) { slot_.waiting_for.store(value, std::memory_order_release); }

    BoardSlot& slot_;
  };

 private:
  void examine(int rank, std::span<const int> peers, const Call& call, double waited_s) const;
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
  Signature read(const BoardSlot::Entry& entry) const;
  int root_of_wait(int rank) const;
  int culprit_of_mismatch(int rank, int peer, const Call& call, const Signature& got) const;

  BoardSlot* slots_;
  AbortNotice* notice_;
  std::vector<int> world_ranks_;
  double timeout_s_;
  std::string transport_;
  std::function<std::string(int)> health_;
};

}  // namespace lockstep
