// Results of `lockstep bench` for other programs, all made from the content of the JSON file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/junit.h"

namespace lockstep {

// What was measured, by name: operation, algorithm, transport, ranks, bytes ...
using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables in the name of an entry. The second part of the name is the algorithm, or the
// technique's strategy, method, variant or schedule.
Variables bench_variables(const nlohmann::ordered_json& entry);
// The value of a variable; empty if there is none.
std::string value_of(const Variables& variables, std::string_view key);
// Entries of repetitions, without aggregates.
std::vector<const nlohmann::ordered_json*> measured_entries(const nlohmann::ordered_json& file);

// A line for each tuple of variables and repetition: columns of variables, then of what was
// measured, with the keys of JSON. Lists are left out.
std::string bench_csv(const nlohmann::ordered_json& file);
// A case that fails if `slow`, "slow_ranks" of a file, names ranks.
JunitCase case_of_ranks(const nlohmann::ordered_json& slow);
// A case for each tuple of variables, which fails if its elements are wrong, and one that fails if
// ranks are slow.
std::string bench_junit(const nlohmann::ordered_json& file);
// Metrics in Prometheus' text format: few, because they are kept for a long time. Of a collective,
// the bandwidth at the largest size and the time at the smallest, out of place; of a technique, the
// last point of each algorithm.
std::string bench_prometheus(const nlohmann::ordered_json& file);

}  // namespace lockstep
