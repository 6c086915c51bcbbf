// Writes results through Google Benchmark.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// Runs all benchmarks registered with Google Benchmark and unregisters them. Returns its JSON; the
// context holds our schema, the environment, the command line and `context`.
nlohmann::ordered_json run_registered(const std::map<std::string, std::string>& context = {});

}  // namespace lockstep
