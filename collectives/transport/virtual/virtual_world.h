// Ranks in virtual time: every rank a line of execution of this one thread, messages in memory,
// time by the link model.
#pragma once

#include <memory>
#include <vector>

#include "collectives/base/links.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/virtual/virtual_time.h"

namespace lockstep {

// One end for each rank; rank i uses its end on a line of `time`. There is no deadline: when
// nothing can happen any more, every rank that waits is told who keeps it.
std::vector<std::unique_ptr<Transport>> virtual_world(VirtualTime& time, int ranks,
                                                      const LinkModel& links);

}  // namespace lockstep
