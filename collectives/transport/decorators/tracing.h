// Traces every message of any transport: a span where it is sent, a span where it is received, and
// an arrow between them.
#pragma once

#include "collectives/base/trace.h"
#include "collectives/transport/decorators/decorator.h"

namespace lockstep {

// Subgroups are drawn on the next tracks, in order of creation. The trace must outlive the
// transport.
std::unique_ptr<Transport> tracing(std::unique_ptr<Transport> inner, Trace& trace);

}  // namespace lockstep
