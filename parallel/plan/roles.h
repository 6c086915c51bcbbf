// Which ranks are workers and which are servers.
#pragma once

#include "parallel/plan/options.h"

namespace lockstep {

// Workers are ranks 0 .. workers() - 1, servers the ranks after them. Or, co-located, every rank is
// both, and server i is rank i. If co-located servers are asynchronous, worker and server are two
// threads of a rank, which talk through a group with two ends per rank (Transport::two_ends): worker
// i is end i, server i is end ranks + i. Server i keeps part i of the flat parameters (Parts),
// regardless of the tensors' boundaries.
struct Roles {
  int ranks = 1, servers = 1;
  bool colocated = false, two_ends = false;

  int workers() const { return colocated ? ranks : ranks - servers; }
  bool is_worker(int rank) const { return rank < workers(); }
  bool is_server(int rank) const { return colocated || !is_worker(rank); }
  // The server's rank in the group in which they talk.
  int rank_of_server(int server) const {
    return colocated && !two_ends ? server : workers() + server;
  }
  // Also accepts a rank's second end.
  int server_of_rank(int rank) const { return colocated ? rank % ranks : rank - workers(); }
  // Whether a server's parameters and gradients are in its own memory, not in a worker's.
  bool server_keeps_own() const { return !colocated || two_ends; }
  // The peer with which a worker or a server begins, so that not all of them start with the same
  // one.
  int first_server(int worker) const { return worker * servers / workers(); }
  int first_worker(int server) const { return server * workers() / servers; }
};

// Throws Error (bad_input) naming the rule that servers, mode or staleness break.
void check_servers(const TrainOptions& options, int ranks);

inline Roles roles_of(const TrainOptions& options, int ranks) {
  return {.ranks = ranks,
          .servers = options.colocated ? ranks : options.servers,
          .colocated = options.colocated,
          .two_ends = options.colocated && options.mode != "bsp"};
}

}  // namespace lockstep
