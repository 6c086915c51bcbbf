// Counts the messages and bytes of any transport. The counters must outlive it. Subgroups use the
// same counters.
#pragma once

#include "collectives/base/counters.h"
#include "collectives/transport/decorators/decorator.h"

namespace lockstep {

std::unique_ptr<Transport> counting(std::unique_ptr<Transport> inner, Counters& counters);

}  // namespace lockstep
