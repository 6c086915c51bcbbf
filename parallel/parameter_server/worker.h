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
  // In step: receives the servers' parts of `parameters` one after another. Each worker begins with
  // another server, so that not all of them share one's way out.
  void pull(Slice parameters);
  // Not in step: receives them in whatever order they come, because a server may need its reply
  // taken before it can go on to serve others. Where the servers may have others to wait for, each
  // may take that many times the deadline.
  void pull_any(Slice parameters, int deadlines = 1);

 private:
  // Calls use(server, its rank) for every server but this rank.
  template <typename Use>
  void for_servers(Use use) const;

  void finish_push();
  std::size_t wait_any(std::span<const Request> receives, std::span<const int> from, int deadlines);

  Communicator& comm_;
  Roles roles_;
  double norm_ = 0;
  std::vector<Request> sends_;
};

}  // namespace lockstep
