#include "bench/collectives/points.h"

#include <numeric>

namespace lockstep {
namespace {

std::vector<int> roots_of(const BenchOptions& options, int ranks) {
  if (!options.all_roots) return {options.root};
  std::vector<int> roots(static_cast<std::size_t>(ranks));
  std::iota(roots.begin(), roots.end(), 0);
  return roots;
}

}  // namespace

std::vector<PointSpec> points_of(Communicator& comm, int ranks, const BenchOptions& options) {
  std::vector<PointSpec> points;
  const auto add = [&](DType dtype, ReduceOp op, bool is_scaled, int root, std::int64_t bytes) {
    const Count element = element_bytes(dtype), count = bytes / element;
    points.push_back({.dtype = dtype,
                      .op = op,
                      .is_scaled = is_scaled,
                      .problem = {.ranks = ranks,
                                  .count = count,
                                  .element_bytes = element,
                                  .root = root,
                                  .ranks_per_node = comm.ranks_per_node(),
                                  .counts = counts_of(options.skew, count, ranks, element)}});
  };
  const auto add_sizes = [&](DType dtype, ReduceOp op, bool is_scaled) {
    for (const int root : roots_of(options, ranks))
      for (const std::int64_t bytes : sizes_of(options, dtype, ranks))
        add(dtype, op, is_scaled, root, bytes);
  };
  for (const DType dtype : options.dtypes) {
    for (const ReduceOp op : options.ops) add_sizes(dtype, op, false);
    if (options.scaled_sums) add_sizes(dtype, ReduceOp::sum, true);
  }
  return points;
}

}  // namespace lockstep
