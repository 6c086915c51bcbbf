// Runs one plan on all of its ranks: trains it, or simulates a step without data.
#pragma once

#include <string>
#include <vector>

#include "collectives/transport/launch.h"
#include "models/roofline_backend.h"
#include "parallel/plan.h"
#include "parallel/result.h"

namespace lockstep {

// What a rank counted in a step, and the seconds that it took; 0 if it was trained.
struct CountedRank {
  RankRecord record;
  double seconds = 0;
};

// Adds the seconds of the steps to `seconds`, without the first one, which also allocates.
std::vector<CountedRank> train_ranks(const Plan& plan, const LaunchOptions& world,
                                     std::vector<double>& seconds);
// In virtual time.
std::vector<CountedRank> simulate_ranks(const Plan& plan, const Roofline& roofline,
                                        const std::string& link);
double slowest(const std::vector<CountedRank>& ranks);

}  // namespace lockstep
