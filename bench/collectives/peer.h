// The library of other processes, measured in turn with ours, iteration by iteration.
//
// This program is started once more, by `mpirun` or, for gloo, as one process whose ranks are
// threads; they sleep on a board in shared memory until they are told to run an operation once, and
// write there how long it took. So the two never run at the same time, and what disturbs the
// machine disturbs both alike.
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

// What has to be said to measure a peer at the same points: words of `lockstep bench`.
struct PeerCommand {
  std::string library;  // openmpi, mpich or gloo
  int ranks = 0;
  double timeout_s = 30;
  std::vector<std::string> words;
};

// The side that compares. Not thread-safe: rank 0's.
class Peer {
 public:
  // Starts the processes. Throws Error (bad_input) where that cannot be.
  explicit Peer(PeerCommand command);
  ~Peer();
  Peer(const Peer&) = delete;

  const std::string& library() const { return command_.library; }
  // What its messages go over.
  std::string_view transport() const;
  // Waits until all its ranks have joined: before that they disturb whatever is measured. Throws
  // Error (lost_rank) if they do not come, as the others below.
  void wait_for_ranks();
  // Goes on to the next point, in the order of the benchmark's loops.
  void next_point();
  // "" or what the library does not have for this point: "no bf16".
  std::string lacks() const;
  // Elements that were wrong at this point.
  double wrong(bool in_place) const;
  // Runs the operation on all of the peer's ranks; the seconds that each took.
  std::vector<double> run(bool in_place);

 private:
  void tell(int what);
  std::string last_words();
  void stop();

  PeerCommand command_;
  std::string board_path_;
  std::ifstream log_;  // what the processes said
  PeerBoard* board_ = nullptr;
  pid_t launcher_ = -1;
};

// The peer's side: a rank that runs what it is told.
class PeerServer {
 public:
  // Joins the board at `path`, and says so.
  PeerServer(const std::string& path, int rank);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;

  // One point: answers with what the library `lacks` for it and with `wrong` elements out of place
  // and in place, then runs `entries` (out of place, in place; none if it lacks something) until
  // told to go on.
  void serve(Communicator& comm, const std::vector<Timed>& entries,
             const std::vector<double>& wrong, std::string_view lacks);

 private:
  int wait_for_command() const;
  void answer();

  std::string path_;
  PeerBoard* board_ = nullptr;
  int rank_;
  std::uint32_t obeyed_ = 0;  // commands
};

}  // namespace lockstep
