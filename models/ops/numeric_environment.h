// Everything besides the program that determines how this process rounds: libraries, their kernels,
// and environment variables that choose among them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Names and values. Processes of one run must agree on them.
std::vector<std::pair<std::string, std::string>> numeric_environment();

}  // namespace lockstep
