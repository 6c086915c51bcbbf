// A world in virtual time in which only some ranks run, each standing in for others that behave
// identically. A ring of thousands of equal ranks then takes the work of one:
//
//   rank 0 sends to 1, which does not run    its stand-in 0 gets the message
//   rank 0 receives from 7                   takes it: by symmetry 7 has sent the same to 0
//
// So each rank must receive as many messages from ranks of its kind as it sends to them, in the
// same order. A broadcast is not symmetric; rings, and exchanges of ranks in pairs, are. Times are
// those of the whole world if its ranks have equal work, and equal links to their peers. Ranks run
// without data.
#pragma once

#include <functional>
#include <vector>

#include "collectives/transport/launch/launch.h"

namespace lockstep {

// stand_ins[rank] is the rank that runs in its place, or the rank itself. A group that contains a
// rank also contains its stand-in. Throws what launch() throws for options that it takes.
void launch_symmetric(const LaunchOptions& options, const std::vector<int>& stand_ins,
                      const std::function<void(RankContext&)>& program);

// A world for each program, at least one, in which every rank runs it. They know nothing of each
// other and run at the same time, each on a core; or one after the other if there is no core or
// no memory for that. With the clock cpu they disturb each other. Throws what launch() throws for
// options that it takes; if several worlds fail, the error of the first.
void launch_at_once(const LaunchOptions& options,
                    const std::vector<std::function<void(RankContext&)>>& programs);

}  // namespace lockstep
