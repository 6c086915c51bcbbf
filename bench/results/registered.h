// Results go through Google Benchmark, which writes them.
#pragma once

#include <map>
#include <string>

namespace lockstep {

// Runs what was registered with Google Benchmark and forgets it. Returns its JSON, whose context
// names our schema, the environment, and what is added.
std::string run_registered(const std::map<std::string, std::string>& context = {});

}  // namespace lockstep
