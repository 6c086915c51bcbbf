// What hosts lack: cores, GPUs or memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/burn_in/burn_in.h"

namespace lockstep {

// Hosts that have less of something than is expected or, where nothing is, than most have: names, and what
// is missing: "has 3 cores, expected 4".
std::vector<std::pair<std::string, std::string>> parts_missing(const BurnInRun& run,
                                                               const ExpectedParts& expected);

}  // namespace lockstep
