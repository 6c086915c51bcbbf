// What hosts lack: cores, GPUs or memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/burn_in/burn_in.h"

namespace lockstep {

// Returns hosts that have less than expected, or by default less than most hosts, each with a text such as
// "has 3 cores, expected 4".
std::vector<std::pair<std::string, std::string>> parts_missing(const BurnInRun& run,
                                                               const ExpectedParts& expected);

}  // namespace lockstep
