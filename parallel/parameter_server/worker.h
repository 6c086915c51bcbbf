// A worker's end of a parameter server: pushes gradients to the servers, and pulls parameters from
// them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/plan/roles.h"

namespace lockstep {

class Worker {
 public:
  Worker(Communicator& comm, const Roles& roles) : comm_(comm), roles_(roles) {}

  // Starts to send each server on another rank its part of `gradients`, after their norm if it is
  // given. The data must keep their value until pull() or finish_push().
  void push(Slice gradients, std::optional<double> norm = {});
  // Synchronous: receives the servers' parts of `parameters` one after another. Each worker begins
  // with a different server, so that not all of them share one server's egress.
  void pull(Slice parameters);
  // Asynchronous: receives the parts in any order, because a server may be unable to serve others
  // until its reply is received. A server may wait for other workers; then each reply may take
  // `deadlines` times the timeout.
  void pull_any(Slice parameters, int deadlines = 1);
  // Waits until what was pushed has been sent.
  void finish_push();

 private:
  // Calls use(server, its rank) for every server on another rank.
  template <typename Use>
  void for_servers(Use use) const;
  std::size_t wait_any(std::span<const Request> receives, std::span<const int> from, int deadlines);

  Communicator& comm_;
  Roles roles_;
  double norm_ = 0;
  std::int64_t pushes_ = 0, pulls_ = 0;
  std::vector<Request> sends_;
};

}  // namespace lockstep
