// One end in a group of MPI ranks: what it shares with its process's other ends, and how it waits.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <ctime>
#include <memory>
#include <span>
#include <utility>

#include "collectives/base/device.h"
#include "collectives/transport/mpi/members.h"
#include "collectives/transport/mpi/packet.h"

namespace lockstep {

class MpiGroup {
 public:
  // The first or the second of this process's ends.
  MpiGroup(std::shared_ptr<MpiMembers> members, int end)
      : members_(std::move(members)),
        rank_(end * members_->processes() + members_->process()),
        size_(members_->ends() * members_->processes()) {}
  MpiGroup(const MpiGroup&) = delete;

  MpiMembers& members() { return *members_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Board& board() { return members_->board(); }
  PacketPool& packets() { return packets_; }
  // How MPI reaches another end.
  int process(int rank) const { return rank % members_->processes(); }
  MPI_Comm comm_to(int rank) const { return members_->comm(rank_, rank); }
  MPI_Comm comm_from(int rank) const { return members_->comm(rank, rank_); }
  // Memory for what arrives and is used at once; at least `bytes`, good until the next call.
  std::byte* scratch(Device& device, Count bytes);

  // Waits in this rank's name until there is something from one of `peers`: looks for a while, then
  // gives the processor away, then sleeps in between.
  template <typename IsThere>
  void wait_until(std::span<const int> peers, const Call& call, IsThere is_there) {
    const auto ready = [&] {
      // Progress would let MPI read memory that the failed rank has freed; some libraries die of
      // it.
      return board().notice().rank() < 0 && is_there();
    };
    const int looks = members_->oversubscribed() ? 1 : 2000;
    for (int look = 0; look < looks; ++look)
      if (ready()) return;
    int pauses = 0;
    const auto pause = [&] {
      constexpr int yields = 200;
      constexpr timespec nap{.tv_sec = 0, .tv_nsec = 20'000};
      if (++pauses < yields)
        sched_yield();
      else
        nanosleep(&nap, nullptr);
    };
    board().wait(rank_, peers, call, ready, pause);
  }
  // The same for what `peer` does with a message. A wait that fails stops the world, unless the
  // peer has departed.
  template <typename IsThere>
  void wait(int peer, const Call& call, IsThere is_there) {
    try {
      wait_until(std::span(&peer, 1), call, is_there);
    } catch (const Error& error) {
      fail(peer, error);
      throw;
    }
  }
  void wait(int peer, const Call& call, MPI_Request& request);

  // This rank fails and is about to free memory that messages are read from: makes every rank stop
  // its transfers first.
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
