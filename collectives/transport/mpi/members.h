// What the ends that one process holds in a group of MPI ranks have in common: its communicators,
// and the memory that the ranks of one host share, with the board.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>
#include <vector>

#include "collectives/transport/board.h"
#include "collectives/transport/mpi/peer_heaps.h"
#include "collectives/transport/mpi/staging.h"

namespace lockstep {

// Throws Error (lost_rank) with MPI's own words unless `code` is success.
void check_mpi(int code, std::string_view what);

// Ends are numbered as in Transport::two_ends: first each process's first, then their second.
class MpiMembers {
 public:
  // Takes over `comm`; every rank of it calls. Each of them has so many `ends`. What its world
  // shares it has from `beside`, a group of that world; the world itself is beside none.
  MpiMembers(MPI_Comm comm, int ends, const MpiMembers* beside, std::vector<int> world_ranks,
             double timeout_s);
  ~MpiMembers();
  MpiMembers(const MpiMembers&) = delete;

  // For messages from one end to another: with several of each process, MPI could not tell them
  // apart.
  MPI_Comm comm(int from, int to) const {
    return comms_[static_cast<std::size_t>(from / processes_ * ends_ + to / processes_)];
  }
  int process() const { return process_; }
  int processes() const { return processes_; }
  int ends() const { return ends_; }
  Board& board() { return *board_; }
  int ranks_per_node() const { return ranks_per_node_; }
  bool one_host() const { return one_host_; }
  bool oversubscribed() const { return oversubscribed_; }
  // An end's places in shared memory; null where hosts share none.
  Staging* staging(int end) { return staging_ ? &staging_[end] : nullptr; }
  // Where data can be lent; null where they cannot.
  const PeerHeaps* heaps() const { return heaps_; }
  // Why the system keeps MPI from copying between processes at once; "" if it does not.
  const std::string& refused_peer_memory() const { return refused_peer_memory_; }

 private:
  std::string health(int end) const;
  int find_ranks_per_node(MPI_Comm host) const;

  int ends_;
  std::vector<MPI_Comm> comms_;
  int process_ = 0, processes_ = 1;
  int ranks_per_node_ = 1;
  bool one_host_ = true;
  bool oversubscribed_ = false;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<BoardSlot> private_slots_;  // where hosts share no memory
  AbortNotice private_notice_{};
  BoardSlot* slots_ = nullptr;
  Staging* staging_ = nullptr;
  const PeerHeaps* heaps_ = nullptr;
  std::string refused_peer_memory_;
  std::unique_ptr<Board> board_;
};

}  // namespace lockstep
