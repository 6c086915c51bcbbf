// The state shared by all ends of one process in a group of MPI ranks: communicators, and the
// shared memory of the host with the board.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/transport/failure/board.h"
#include "collectives/transport/mpi/peer_heaps.h"
#include "collectives/transport/mpi/showcase.h"
#include "collectives/transport/mpi/staging.h"

namespace lockstep {

// Throws Error (lost_rank) with MPI's message unless `code` is success.
void check_mpi(int code, std::string_view what, const std::string& hint = {});

// Waits without keeping a core busy, as the library's own waiting does. Throws like check_mpi().
void await_mpi(MPI_Request request, std::string_view what);
// Collective.
MPI_Comm copy_of(MPI_Comm comm);

// Ends are numbered as in Transport::two_ends: the first ends of all processes, then the second.
class MpiMembers {
 public:
  // Takes over `comm`; collective. Each process has `ends` ends. `world_group` is any group of the
  // same world, whose notice, heaps and hosts it reuses; null for the world itself.
  MpiMembers(MPI_Comm comm, int ends, const MpiMembers* world_group, std::vector<int> world_ranks,
             double timeout_s);
  ~MpiMembers();
  MpiMembers(const MpiMembers&) = delete;

  // For messages from one end to another. MPI could not distinguish several ends of a process on
  // one communicator.
  MPI_Comm comm(int from, int to) const {
    return comms_[static_cast<std::size_t>(from / processes_ * ends_ + to / processes_)];
  }
  // Waits until all processes have arrived, and frees what MPI frees collectively, because MPI
  // would wait without a deadline. Throws Error if one does not arrive, or has made different
  // calls. The destructor does the same, and reports a failure on the board.
  void close();
  // Whether the group is closed; the board is then gone.
  bool closed() const { return closed_; }
  int process() const { return process_; }
  int processes() const { return processes_; }
  int ends() const { return ends_; }
  Board& board() { return *board_; }
  int ranks_per_node() const { return ranks_per_node_; }
  bool one_host() const { return one_host_; }
  bool oversubscribed() const { return oversubscribed_; }
  // An end's staging in shared memory; null if the ranks are on several hosts.
  Staging* staging(int end) { return staging_ ? &staging_[end] : nullptr; }
  // Where an end shows its memory to the others; null if they do not map each other's heaps.
  Showcase* showcase(int end) { return heaps_ ? &showcases_[end] : nullptr; }
  // The heaps that all ranks map; null if there are none.
  const PeerHeaps* heaps() const { return heaps_; }
  // This process's, in all groups.
  WaitTimes& wait_times() { return *wait_times_; }
  // Why the system does not let MPI copy between processes directly; "" if it does.
  const std::string& refused_peer_memory() const { return refused_peer_memory_; }

 private:
  // The letter of an end's process in /proc/PID/stat.
  char state(int end) const;
  std::string health(int end) const;
  // Returns for each world rank the first rank on the same host.
  std::vector<int> nodes_of_ranks() const;
  // Returns memory that all processes see: from the heap of the first process or, without heaps,
  // from MPI's window. Collective.
  void* shared_memory(std::size_t bytes, int first_world_rank);
  void await_all(std::string_view what) const;

  int ends_;
  std::vector<MPI_Comm> comms_;
  int process_ = 0, processes_ = 1;
  std::vector<int> node_of_world_rank_;
  int ranks_per_node_ = 1;
  bool one_host_ = true;
  bool oversubscribed_ = false;
  std::atomic<bool> closed_ = false;
  MPI_Win window_ = MPI_WIN_NULL;
  std::byte* of_heap_ = nullptr;          // this process's part of its heap that the group shares
  std::vector<BoardSlot> private_slots_;  // if the ranks are on several hosts
  AbortNotice private_notice_{};
  std::vector<RankWaits> private_waits_;
  BoardSlot* slots_ = nullptr;
  Staging* staging_ = nullptr;
  Showcase* showcases_ = nullptr;
  PeerHeaps* heaps_ = nullptr;
  std::string refused_peer_memory_;
  std::shared_ptr<WaitTimes> wait_times_;
  std::unique_ptr<Board> board_;
};

}  // namespace lockstep
