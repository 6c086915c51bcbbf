// Sums a vector over ranks: threads, or the processes that mpirun has started.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/transport/launch/launch.h"

int main(int words, char** word) {
  lockstep::LaunchOptions options;
  options.ranks = words > 1 ? std::atoi(word[1]) : 3;
  lockstep::launch(options, [](lockstep::RankContext& rank) {
    std::vector<double> values(1000, rank.world.rank() + 1);
    lockstep::all_reduce(rank.world, lockstep::host_slice(std::span(values)),
                         lockstep::ReduceOp::sum, "ring");
    std::printf("rank %d of %d: %g\n", rank.world.rank(), rank.world.size(), values.back());
  });
}
