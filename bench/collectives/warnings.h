// What makes measured times mean something else than they seem to.
#pragma once

#include <string>
#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep {

// Before anything is measured: more ranks than cores, a library that then cannot give way, a system
// that keeps processes from reading each other's memory.
std::vector<std::string> warnings_of(Communicator& comm, const BenchOptions& options);

// After: iterations that were held up as TCP's delayed acknowledgements hold them up. "" if none.
std::string stall_warning(const BenchResult& result);

}  // namespace lockstep
