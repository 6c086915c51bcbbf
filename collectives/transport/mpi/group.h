// One end of a group of MPI ranks: the state it shares with its process's other end, and its waits.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <ctime>
#include <memory>
#include <span>
#include <utility>

#include "collectives/base/device.h"
#include "collectives/transport/mpi/counted_wait.h"
#include "collectives/transport/mpi/members.h"
#include "collectives/transport/mpi/packet.h"

namespace lockstep {

// How a rank pauses between looks for something. A rank that shares its core with its peers gets
// it back many times while they work, if it only yields. `sleep()` lasts a bounded time.
template <typename Sleep>
struct Pauses {
  std::chrono::microseconds longest_yielding;
  Sleep sleep;
};
// For a message: nothing announces it.
inline constexpr Pauses naps{std::chrono::microseconds(200), [] {
                               constexpr timespec nap{.tv_sec = 0, .tv_nsec = 20'000};
                               nanosleep(&nap, nullptr);
                             }};

class MpiGroup {
 public:
  // `end` 0 or 1: the first or second end of this process.
  MpiGroup(std::shared_ptr<MpiMembers> members, int end)
      : members_(std::move(members)),
        rank_(end * members_->processes() + members_->process()),
        size_(members_->ends() * members_->processes()) {}
  MpiGroup(const MpiGroup&) = delete;

  MpiMembers& members() { return *members_; }
  std::shared_ptr<MpiMembers> shared_members() const { return members_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Board& board() { return members_->board(); }
  PacketPool& packets() { return packets_; }
  // The MPI rank and communicators for messages with another end.
  int process(int rank) const { return rank % members_->processes(); }
  MPI_Comm comm_to(int rank) const { return members_->comm(rank_, rank); }
  MPI_Comm comm_from(int rank) const { return members_->comm(rank, rank_); }
  // At least `bytes` of scratch for data that are used at once. Valid until the next call.
  std::byte* scratch(Device& device, Count bytes);

  // Blocks this rank until one of `peers` provides something: first spins, then yields, then sleeps
  // between checks.
  template <typename IsThere, typename Pausing = decltype(naps)>
  void wait_until(std::span<const int> peers, const Call& call, IsThere is_there,
                  const Pausing& pauses = naps) {
    CountedWait counted(members_->wait_times(), board().world_rank(peers.front()));
    const auto ready = [&] {
      // MPI's progress could read memory that the failed rank has freed, and some libraries crash.
      return board().notice().rank() < 0 && is_there();
    };
    const int looks = members_->oversubscribed() ? 1 : 2000;
    for (int look = 0; look < looks; ++look) {
      if (ready()) return;
      counted.look_often();
    }
    // Without the board: examining it after each yield would take longer than the peers need.
    auto now = CountedWait::Clock::now();
    for (const auto end = now + pauses.longest_yielding; now < end;
         now = CountedWait::Clock::now()) {
      counted.look(now);
      sched_yield();
      if (ready()) return counted.look(CountedWait::Clock::now());
    }
    board().wait(rank_, peers, call, ready, [&] {
      counted.look(CountedWait::Clock::now());
      pauses.sleep();
    });
    counted.look(CountedWait::Clock::now());
  }
  // The same for a message with `peer`. A failed wait stops the world, unless the peer has
  // departed.
  template <typename IsThere, typename Pausing = decltype(naps)>
  void wait(int peer, const Call& call, IsThere is_there, const Pausing& pauses = naps) {
    try {
      wait_until(std::span(&peer, 1), call, is_there, pauses);
    } catch (const Error& error) {
      fail(peer, error);
      throw;
    }
  }
  void wait(int peer, const Call& call, MPI_Request& request);
  // MPI makes progress on messages only inside its calls. For waits on something else.
  void make_progress(int peer);

  // This rank fails and will free memory from which messages are read. First makes every rank stop
  // its transfers.
  void settle();

 private:
  void fail(int peer, const Error& error);

  std::shared_ptr<MpiMembers> members_;
  int rank_, size_;
  bool settled_ = false;
  PacketPool packets_;
  Memory scratch_;
  Device* scratch_device_ = nullptr;
};

}  // namespace lockstep
