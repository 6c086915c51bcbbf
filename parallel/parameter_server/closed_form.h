// The time of a push and a pull of all parameters by all workers.
#pragma once

#include <algorithm>

#include "collectives/base/links.h"
#include "parallel/plan/roles.h"

namespace lockstep {

// Whether the time below is exact for equal parts: one number of ranks is a multiple of the other.
inline bool push_pull_time_is_known(const Roles& roles) {
  const int workers = roles.workers(), servers = roles.servers;
  return workers % servers == 0 || servers % workers == 0;
}

// Every egress and ingress carries its bytes without a pause: `bytes` per worker in each direction,
// and W / S times as many per server. With more servers than workers, S = m W, the first servers to
// receive all their pushes answer while others still receive, which saves m - 1 parts. Exact for
// equal parts if one number is a multiple of the other, otherwise an estimate. With one server it
// grows with the number of workers, while a ring all-reduce stays below 2 * bytes * beta.
inline double push_pull_seconds(const Roles& roles, double bytes, const Link& link) {
  const double workers = roles.workers(), servers = roles.servers;
  double times = 2 * std::max(1.0, workers / servers);  // all bytes, on the busiest link
  if (roles.colocated) times = 2 * (workers - 1) / workers;
  if (servers > workers && !roles.colocated) times = 2 - (servers / workers - 1) / servers;
  return 2 * link.alpha_s + times * bytes * link.beta_s_per_byte;
}

}  // namespace lockstep
