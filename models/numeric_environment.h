// What decides how this process rounds, apart from the program: libraries, their kernels, and
// environment variables that choose among them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Names and values. Processes of one training must have the same.
std::vector<std::pair<std::string, std::string>> numeric_environment();

}  // namespace lockstep
