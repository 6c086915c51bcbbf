// Warns of conditions that distort the measured times.
#pragma once

#include <string>
#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep {

// Before measuring: more ranks than cores, a library that then does not yield its core, a system
// that prevents processes from reading each other's memory.
std::vector<std::string> warnings_of(Communicator& comm, const BenchOptions& options);

// After measuring: iterations delayed like TCP's delayed acknowledgements. "" if none.
std::string stall_warning(const BenchResult& result);

}  // namespace lockstep
