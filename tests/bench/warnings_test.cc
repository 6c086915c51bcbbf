// The warning distinguishes iterations delayed by the network from merely slow ones.
#include "bench/collectives/warnings.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

BenchResult result_of(std::vector<double> seconds, std::string transport = "mpi") {
  return {.algorithm = "ring",
          .transport = std::move(transport),
          .problem = {.ranks = 4, .count = 256},
          .seconds = std::move(seconds)};
}

TEST(StallWarning, CountsIterationsThatWaitedForAnAcknowledgement) {
  const std::string warning = stall_warning(result_of({1e-3, 1e-3, 0.0412, 1e-3, 0.0815, 1e-3}));
  EXPECT_NE(warning.find("2 of 6 iterations"), std::string::npos) << warning;
  EXPECT_NE(warning.find("ring of 1024 B"), std::string::npos) << warning;
}

TEST(StallWarning, IsSilentOtherwise) {
  EXPECT_EQ(stall_warning(result_of({1e-3, 2e-3, 8e-3})), "");
  EXPECT_EQ(stall_warning(result_of({0.1, 0.1, 0.15})), "") << "slow by itself";
  EXPECT_EQ(stall_warning(result_of({1e-3, 1e-3, 0.05}, "threads")), "") << "no TCP there";
}

}  // namespace
}  // namespace lockstep
