// What follows from the samples of a result.
#include <algorithm>

#include "bench/collectives/collective.h"
#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {

void BenchResult::add(const BenchResult& repetition) {
  seconds.insert(seconds.end(), repetition.seconds.begin(), repetition.seconds.end());
  wrong = std::max(wrong, repetition.wrong);
  own.add(repetition.own);
  group_seconds.insert(group_seconds.end(), repetition.group_seconds.begin(),
                       repetition.group_seconds.end());
}

double BenchResult::algbw_gb_per_s() const {
  const double time = percentile(seconds, 0.5);
  return time > 0 ? communicators * problem.bytes() / time / 1e9
                  : 0;  // links without cost have no bandwidth
}

double BenchResult::busbw_gb_per_s(Operation operation) const {
  const double p = problem.ranks;
  switch (operation) {
    case Operation::all_reduce:
      return algbw_gb_per_s() * 2 * (p - 1) / p;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return algbw_gb_per_s() * (p - 1) / p;
    case Operation::all_to_all_v: {
      const double time = percentile(seconds, 0.5);
      const Count bytes = busiest(problem).elements * problem.element_bytes;
      return time > 0 ? communicators * static_cast<double>(bytes) / time / 1e9 : 0;
    }
    default:
      return algbw_gb_per_s();
  }
}

bool has_wrong(const BenchRun& run) {
  return std::ranges::any_of(run.results, [](const BenchResult& r) { return r.wrong > 0; });
}

double average_busbw_gb_per_s(const BenchRun& run, Operation operation) {
  double sum = 0;
  for (const BenchResult& result : run.results) sum += result.busbw_gb_per_s(operation);
  return run.results.empty() ? 0 : sum / static_cast<double>(run.results.size());
}

bool is_too_slow(const BenchRun& run, Operation operation, const BenchOptions& options) {
  constexpr double tolerated = 0.9;
  const std::optional<double>& least = options.table.least_busbw;
  return least && average_busbw_gb_per_s(run, operation) < tolerated * *least;
}

double BenchResult::copy_share(Operation operation) const {
  // The bytes that all ranks read and write, relative to the 2 n p bytes of the copies.
  const double p = problem.ranks;
  const auto needed = [&] {
    switch (operation) {
      case Operation::broadcast:
        return (p - 1) / p;
      case Operation::reduce:
      case Operation::reduce_scatter:
        return (p + 1) / (2 * p);
      case Operation::gather:
      case Operation::scatter:
        return 1 / p;
      default:
        return 1.0;
    }
  };
  return copy_seconds * needed() / percentile(seconds, 0.5);
}

}  // namespace lockstep
