// The own times of the ranks of training runs, in the file of a benchmark that trains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/slow_ranks.h"

namespace lockstep {

// Adds "ranks", "rank_times" and "slow_ranks" for entries by name, without those that were not trained.
// Where ranks ran, and which are slow, are those of the last entry with the most ranks.
void add_trained_ranks(nlohmann::ordered_json& file,
                       const std::vector<std::pair<std::string, const SlowRanks*>>& entries);
// Prints which ranks are slow, if any are.
void print_slow(const SlowRanks& trained);

}  // namespace lockstep
