// Writes the time that each rank spent on its own work to the file of a benchmark that trains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/slow_ranks.h"

namespace lockstep {

// Adds "ranks", "rank_times" and "slow_ranks" to `file`, for the entries that were trained, by name.
// "ranks" and "slow_ranks" describe the last entry with the most ranks.
void add_trained_ranks(nlohmann::ordered_json& file,
                       const std::vector<std::pair<std::string, const SlowRanks*>>& entries);
// Names the slow ranks, if there are any.
void print_slow(const SlowRanks& trained);

}  // namespace lockstep
