// Which ranks are workers and which are servers.
#pragma once

#include "parallel/options.h"

namespace lockstep {

// Workers are ranks 0 .. workers() - 1 and the servers come after them; or, co-located, every rank
// is both, and server i is rank i. Where such servers do not wait for their workers, both are lines
// of execution of the rank, and talk through a group with two ends a rank (Transport::two_ends):
// worker i is its end i, server i its end ranks + i. Server i keeps part i of the flat parameters
// (Parts), whatever the tensors' boundaries.
struct Roles {
  int ranks = 1, servers = 1;
  bool colocated = false, two_ends = false;

  int workers() const { return colocated ? ranks : ranks - servers; }
  bool is_worker(int rank) const { return rank < workers(); }
  bool is_server(int rank) const { return colocated || !is_worker(rank); }
  // In the group in which they talk.
  int rank_of_server(int server) const {
    return colocated && !two_ends ? server : workers() + server;
  }
  // Also of a rank's second end.
  int server_of_rank(int rank) const { return colocated ? rank % ranks : rank - workers(); }
  // Whether what a server takes and sends is in memory of its own, not in a worker's.
  bool server_keeps_own() const { return !colocated || two_ends; }
  // Whom a worker or a server begins with, so that not all of them meet at the same one.
  int first_server(int worker) const { return worker * servers / workers(); }
  int first_worker(int server) const { return server * workers() / servers; }
};

inline Roles roles_of(const TrainOptions& options, int ranks) {
  return {.ranks = ranks,
          .servers = options.colocated ? ranks : options.servers,
          .colocated = options.colocated,
          .two_ends = options.colocated && options.mode != "bsp"};
}

}  // namespace lockstep
