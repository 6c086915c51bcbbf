// Disturbs a rank's messages without changing them: each starts after a random delay, so messages
// of several senders, and those of a rank's threads, complete in a random order. Without windows it
// also checks that the rank does not change data before they are sent.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/transport/decorators/decorator.h"

namespace lockstep {

struct Disturbance {
  std::uint64_t seed = 1;
  double longest_delay_s = 50e-6;
  bool has_windows = true;  // keeps the transport's windows, if it has any
};

// wait() of a message whose data have changed throws Error (wrong_result) naming both ranks.
std::unique_ptr<Transport> disturbed(std::unique_ptr<Transport> inner,
                                     const Disturbance& disturbance);

}  // namespace lockstep
