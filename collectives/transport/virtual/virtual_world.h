// Ranks in virtual time: each rank is a virtual thread, messages stay in memory, and the link model
// determines their times.
#pragma once

#include <memory>
#include <vector>

#include "collectives/base/link_slowdown.h"
#include "collectives/base/links.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/virtual/virtual_time.h"

namespace lockstep {

// One end for each rank that runs, for a thread of `time`; stand_ins[rank] is the rank that runs in
// its place, or the rank itself. There is no deadline: if no events are left, every waiting rank
// gets an error that names the rank it waits for.
std::vector<std::unique_ptr<Transport>> virtual_world(VirtualTime& time,
                                                      const std::vector<int>& stand_ins,
                                                      const LinkModel& links,
                                                      const std::vector<LinkSlowdown>& slow_links);

}  // namespace lockstep
