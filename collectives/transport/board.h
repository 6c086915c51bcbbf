// The board: what each rank of a group is doing now, and why the world was stopped.
//
// It lies in memory that the ranks share (this process's, or a segment between processes of one
// host), holds only atomics, and is valid when zeroed. Waiting goes through wait() alone: it ends
// when the thing waited for is there, and throws when the world was stopped, when a peer does
// something else, left or died, or past the deadline.
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
#include "collectives/transport/transport.h"
#include "collectives/transport/verdict.h"

namespace lockstep {

// The first failure in the world.
struct AbortNotice {
  std::atomic<std::int32_t> claimed;  // by rank + 1; 0 by nobody
  std::atomic<std::uint32_t> published;
  ErrorKind kind;
  std::int32_t culprit;  // the rank that caused it, as far as known; else -1
  std::array<char, 2048> text;

  bool raised() const { return published.load(std::memory_order_acquire) != 0; }
  int rank() const { return claimed.load() - 1; }
  // True if the world rank `failed_rank` is the first to fail: its error is the one that all ranks
  // report.
  bool claim(int failed_rank);
  // Claims, and says why.
  bool raise(int failed_rank, const std::exception& cause);
};

// One rank's lines on the board, on cache lines of their own, written by that rank only.
struct alignas(64) BoardSlot {
  // An operation that the rank has announced.
  struct Line {
    static constexpr int words = static_cast<int>(sizeof(Signature) / 8);
    std::atomic<std::uint32_t> version;  // odd while it is being written; 0: never written
    std::array<std::atomic<std::uint64_t>, words> signature;
  };
  // A rank may be some operations ahead of one that it needs nothing from, but is remembered.
  static constexpr int remembered = 4;

  std::atomic<std::int32_t> waiting_for;  // peer + 1; 0 when not waiting
  std::atomic<RankState::Where> where;
  std::atomic<std::int32_t> process;  // where ranks are processes: its id
  std::atomic<std::int64_t> newest;   // the line written last
  std::array<Line, remembered> lines;
};

class Board {
 public:
  // `world_ranks[i]` is the rank in the world of this group's rank i: errors name those.
  Board(BoardSlot* slots, AbortNotice* notice, std::vector<int> world_ranks, double timeout_s,
        std::string transport);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[rank]; }
  // Of a group in which every rank has two ends.
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
  // Asked about a peer that keeps a rank waiting: "" or what is wrong with its process.
  void set_health_check(std::function<std::string(int rank)> check) { health_ = std::move(check); }

  // Waits in `rank`'s name, until ready() is true, for something from one of `peers`. `pause()`
  // gives the processor away for a bounded time. The caller has spun already if it wanted to.
  template <typename Ready, typename Pause>
  void wait(int rank, std::span<const int> peers, const Call& call, Ready ready, Pause pause) {
    using Clock = std::chrono::steady_clock;
    const Waiting mark(slots_[rank], peers.front());
    const auto start = Clock::now();
    while (!ready()) {
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      examine(rank, peers, call, waited);
      pause();
    }
  }

  // Throws if `got`, which came with a message from `peer`, is not what this rank is doing.
  void match(int rank, int peer, const Call& call, const Signature& got) const {
    if (got != call.signature) throw_mismatch(rank, peer, call, got);
  }
  // Throws if a message of `got` came where this rank takes `into`.
  void match_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
    if (got.count != into.count || got.dtype != into.dtype) throw_size(rank, peer, call, into, got);
  }
  // Throws what keeps this rank from getting something from `peers` that will never come.
  [[noreturn]] void give_up(int rank, std::span<const int> peers, const Call& call) const;
  // Throws if one of `peers`, from which nothing has come, has left the group.
  void check_departed(int rank, std::span<const int> peers, const Call& call) const;
  // Throws the world's failure, if there is one.
  void check_notice(int rank, int peer, const Call& call) const {
    if (notice_->raised()) throw_notice(rank, peer, call);
  }
  // Who does what, and who waits for whom.
  std::string verdict() const;
  // An error's fields as far as this board knows them.
  ErrorContext context(int rank, int peer, const Call& call) const;

  // Says, while it lives, whom a rank waits for.
  class Waiting {
   public:
    Waiting(BoardSlot& slot, int peer) : slot_(slot) { slot_.waiting_for.store(peer + 1); }
    // A wait that failed stays on the board: it says who kept this rank.
    ~Waiting() {
      if (std::uncaught_exceptions() == 0) slot_.waiting_for.store(0);
    }
    Waiting(const Waiting&) = delete;

   private:
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
  // What a rank announced as its operation of that number; sequence -1 if it has not, or long ago.
  Signature announced(int rank, std::int64_t sequence) const;
  Signature last(int rank) const;
  Signature read(const BoardSlot::Line& line) const;
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
