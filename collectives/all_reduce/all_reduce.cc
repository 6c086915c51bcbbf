#include "collectives/all_reduce/all_reduce.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// The library underneath does not say how it moves data.
Traffic unknown_traffic(int, int, Count) { return {}; }

}  // namespace

const std::vector<AllReduceAlgorithm>& all_reduce_algorithms() {
  static const std::vector<AllReduceAlgorithm> algorithms = {
      {.name = "ring",
       .run = ring_all_reduce,
       .sent = ring_all_reduce_sent,
       .formula = "2(p-1)/p * n",
       .needs_vendor = false},
      {.name = "vendor",
       .run = vendor_all_reduce,
       .sent = unknown_traffic,
       .formula = "",
       .needs_vendor = true},
  };
  return algorithms;
}

const AllReduceAlgorithm& all_reduce_algorithm(std::string_view name) {
  std::string known;
  for (const AllReduceAlgorithm& algorithm : all_reduce_algorithms()) {
    if (algorithm.name == name) return algorithm;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm.name);
  }
  require(false, fmt::format("all_reduce has no algorithm '{}'", name),
          fmt::format("choose one of {}", known));
  return all_reduce_algorithms().front();
}

void all_reduce(Communicator& comm, Slice data, ReduceOp op, std::string_view algorithm) {
  const AllReduceAlgorithm& chosen = all_reduce_algorithm(algorithm);
  const CollectiveCall call(comm, Operation::all_reduce, chosen.name, data, op);
  chosen.run(comm, data, op);
}

}  // namespace lockstep
