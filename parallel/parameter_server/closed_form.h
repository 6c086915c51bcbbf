// The time of a push and a pull of all parameters by all workers.
#pragma once

#include <algorithm>

#include "collectives/base/links.h"
#include "parallel/parameter_server/roles.h"

namespace lockstep {

// Every way out and in carries its bytes without a pause: a worker's `bytes` in each direction, a
// server's W / S times that. With more servers than workers, S = m W, the first servers to have all
// their pushes answer while others still receive, which saves m - 1 parts. Exact for equal parts
// where one number is a multiple of the other, elsewhere an estimate. With one server it grows as
// the number of workers, where a ring all-reduce stays below 2 * bytes * beta.
inline double push_pull_seconds(const Roles& roles, double bytes, const Link& link) {
  const double workers = roles.workers(), servers = roles.servers;
  double times = 2 * std::max(1.0, workers / servers);  // that the busiest way carries all bytes
  if (roles.colocated) times = 2 * (workers - 1) / workers;
  if (servers > workers && !roles.colocated) times = 2 - (servers / workers - 1) / servers;
  return 2 * link.alpha_s + times * bytes * link.beta_s_per_byte;
}

}  // namespace lockstep
