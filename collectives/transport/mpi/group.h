// A group of MPI ranks: its communicator, and the board that its ranks of one host share.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/board.h"
#include "collectives/transport/mpi/packet.h"
#include "collectives/transport/mpi/staging.h"

namespace lockstep {

// Throws Error (lost_rank) with MPI's own words unless `code` is success.
void check_mpi(int code, std::string_view what);

class MpiGroup {
 public:
  // Takes over `comm`; every rank of it calls. A null notice makes one of this group's own: the
  // world's.
  MpiGroup(MPI_Comm comm, AbortNotice* notice, std::vector<int> world_ranks, double timeout_s);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Board& board() { return *board_; }
  int ranks_per_node() const { return ranks_per_node_; }
  PacketPool& packets() { return packets_; }
  // A rank's places in shared memory; null where hosts share none.
  Staging* staging(int rank) { return staging_ ? &staging_[rank] : nullptr; }
  // Why the system keeps MPI from copying between processes at once; "" if it does not.
  const std::string& refused_peer_memory() const { return refused_peer_memory_; }
  // Memory for what arrives and is used at once; at least `bytes`, good until the next call.
  std::byte* scratch(Device& device, Count bytes);

  // Waits in this rank's name until there is something from one of `peers`: looks for a while, then
  // gives the processor away, then sleeps in between.
  template <typename IsThere>
  void wait_until(std::span<const int> peers, const Call& call, IsThere is_there) {
    const auto ready = [&] {
      // Progress would let MPI read memory that the failed rank has freed; some libraries die of
      // it.
      return board_->notice().rank() < 0 && is_there();
    };
    const int looks = oversubscribed_ ? 1 : 2000;
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
    board_->wait(rank_, peers, call, ready, pause);
  }
  // The same for a request. A wait that fails stops the world, unless the peer has departed.
  void wait(int peer, const Call& call, MPI_Request& request,
            MPI_Status* status = MPI_STATUS_IGNORE);

  // This rank fails and is about to free memory that messages are read from: makes every rank stop
  // its transfers first.
  void settle();

 private:
  std::string health(int rank) const;
  int find_ranks_per_node(MPI_Comm host) const;

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  int ranks_per_node_ = 1;
  bool one_host_ = true;
  bool oversubscribed_ = false;
  bool settled_ = false;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<BoardSlot> private_slots_;  // where hosts share no memory
  AbortNotice private_notice_{};
  BoardSlot* slots_ = nullptr;
  Staging* staging_ = nullptr;
  std::string refused_peer_memory_;
  PacketPool packets_;
  Memory scratch_;
  Device* scratch_device_ = nullptr;
  std::unique_ptr<Board> board_;
};

}  // namespace lockstep
