// A rank of a world whose other ranks do not exist: what it sends vanishes, and what it receives is
// zero and arrives at once. The rank can count its messages, without time or memory for other
// ranks.
#pragma once

#include <memory>

#include "collectives/base/links.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// Uses only the node layout of `links`: messages take no time.
std::unique_ptr<Transport> absent_peers(int rank, int size, const LinkModel& links);

}  // namespace lockstep
