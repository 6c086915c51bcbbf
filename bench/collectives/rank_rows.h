// The times of each rank in each result, collected on rank 0.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "bench/results/slow_ranks.h"

namespace lockstep {

// Every rank calls it with its own results. Returns the ranks on rank 0, in order.
std::vector<BenchRank> gather_ranks(Communicator& world, const std::vector<BenchResult>& results,
                                    const BenchOptions& options);

// The ranks that were slow in the sum of all results in which all ranks do the same work.
SlowRanks slow_ranks(const BenchRun& run, const LaunchOptions& world);

// "slowest group: 1 (ranks 1 3), whose operations take 1.2 times as long as those of group 0 (ranks 0
// 2)". Empty if ranks are not split.
std::string slowest_group(const BenchRun& run);

// "ranks": where each rank ran. "rank_times": for each result, lists by rank. If ranks are split,
// "groups" lists the ranks of each, and "group_us" of a result is a list by group.
void add_ranks(nlohmann::ordered_json& file, const BenchRun& run, const LaunchOptions& world,
               const std::vector<std::string>& names);

}  // namespace lockstep
