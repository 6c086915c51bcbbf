// Draws every message that crosses any transport: a span where it is sent and received, an arrow
// between them.
#pragma once

#include "collectives/base/trace.h"
#include "collectives/transport/decorator.h"

namespace lockstep {

// Subgroups are drawn on the next tracks, in the order in which they are made. The trace outlives
// the transport.
std::unique_ptr<Transport> tracing(std::unique_ptr<Transport> inner, Trace& trace);

}  // namespace lockstep
