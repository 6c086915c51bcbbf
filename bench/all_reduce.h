// Measures all-reduce: time of the slowest rank in each iteration, bandwidths, and whether every
// element is right.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/transport/launch.h"

namespace lockstep {

struct BenchOptions {
  std::int64_t min_bytes = 8, max_bytes = std::int64_t{32} << 20;
  int factor = 2;
  int iterations = 20, warmup = 5;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::string> algorithms = {"ring"};
};

// The sizes from min_bytes to max_bytes, each `factor` times the one before.
std::vector<std::int64_t> sizes_of(const BenchOptions& options);
// Throws Error (bad_input) that names the flag and its range.
void check(const BenchOptions& options);

// Measures every size with every algorithm, out of place and in place. Rank 0 prints the table and
// returns the results as Google Benchmark writes them (JSON); the others return "". `all_right`
// tells whether no element was wrong.
std::string bench_all_reduce(RankContext& context, const BenchOptions& options, bool& all_right);

}  // namespace lockstep
