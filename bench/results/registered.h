// Writes results through Google Benchmark.
#pragma once

#include <map>
#include <string>

namespace lockstep {

// Runs all benchmarks registered with Google Benchmark and unregisters them. Returns its JSON; the
// context holds our schema, the environment and `context`.
std::string run_registered(const std::map<std::string, std::string>& context = {});

}  // namespace lockstep
