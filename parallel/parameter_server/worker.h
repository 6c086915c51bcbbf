// A worker's end of a parameter server: pushes gradients to the servers, pulls parameters from
// them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/parameter_server/roles.h"

namespace lockstep {

class Worker {
 public:
  Worker(Communicator& comm, const Roles& roles) : comm_(comm), roles_(roles) {}

  // Starts to send every other rank that is a server its part of `gradients`, and before it, where
  // given, their norm. The data must stay until pull().
  void push(Slice gradients, std::optional<double> norm = {});
  // Receives the servers' parts of `parameters`, in whatever order they come. Where the servers may
  // have others to wait for, each may take that many times the deadline.
  void pull(Slice parameters, int deadlines = 1);

 private:
  // Calls use(server, its rank) for every server but this rank.
  template <typename Use>
  void for_servers(Use use) const;

  std::size_t wait_any(std::span<const Request> receives, std::span<const int> from, int deadlines);

  Communicator& comm_;
  Roles roles_;
  double norm_ = 0;
  std::vector<Request> sends_;
};

}  // namespace lockstep
