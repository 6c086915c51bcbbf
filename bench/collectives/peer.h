// Another library in its own processes, measured alternating with ours, iteration by iteration.
//
// The peer is a second run of this program, started by `mpirun` or, for gloo, as one process whose
// ranks are threads. Its ranks sleep on a board in shared memory until they get a command, run one
// operation, and write its time to the board. So the two never run at the same time, and
// disturbances of the machine affect both alike.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/results/measure.h"

namespace lockstep {

struct PeerBoard;

// The arguments of `lockstep bench` that make a peer measure the same points.
struct PeerCommand {
  std::string library;  // openmpi, mpich or gloo
  int ranks = 0;
  double timeout_s = 30;
  std::vector<std::string> words;
};

// The measuring side. Not thread-safe: only rank 0 uses it.
class Peer {
 public:
  // Starts the processes. Throws Error (bad_input) if that is impossible.
  explicit Peer(PeerCommand command);
  ~Peer();
  Peer(const Peer&) = delete;

  const std::string& library() const { return command_.library; }
  // The transport of the peer's messages.
  std::string_view transport() const;
  // Waits until all its ranks have joined; while they start they would disturb measurements. Throws
  // Error (lost_rank) if they do not answer, as do the functions below.
  void wait_for_ranks();
  // Moves on to the next point, in the order of the benchmark's loops.
  void next_point();
  // "", or what the library lacks for this point: "no bf16".
  std::string lacks() const;
  // The number of wrong elements at this point.
  double wrong(bool in_place) const;
  // Runs the operation on all of the peer's ranks. Returns the seconds of each.
  std::vector<double> run(bool in_place);

 private:
  void send(int command);
  std::string last_line();
  void stop();

  PeerCommand command_;
  std::string board_path_;
  std::ifstream log_;  // the output of the processes
  PeerBoard* board_ = nullptr;
  pid_t launcher_ = -1;
};

// The peer's side: a rank that obeys commands.
class PeerServer {
 public:
  // Joins the board at `path` and reports it.
  PeerServer(const std::string& path, int rank);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;

  // Serves one point: reports what the library `lacks` for it and the numbers of `wrong` elements
  // out-of-place and in-place. Then runs `entries` (out-of-place, in-place; none if it lacks
  // something) until the command to move on.
  void serve(Communicator& comm, const std::vector<Timed>& entries,
             const std::vector<double>& wrong, std::string_view lacks);

 private:
  int wait_for_command() const;
  void answer();

  std::string path_;
  PeerBoard* board_ = nullptr;
  int rank_;
  std::uint32_t obeyed_ = 0;  // number of commands
};

}  // namespace lockstep
