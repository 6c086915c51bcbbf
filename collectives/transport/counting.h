// Counts the messages and bytes that cross any transport. Counters outlive it; subgroups count into
// the same ones.
#pragma once

#include "collectives/base/counters.h"
#include "collectives/transport/decorator.h"

namespace lockstep {

std::unique_ptr<Transport> counting(std::unique_ptr<Transport> inner, Counters& counters);

}  // namespace lockstep
