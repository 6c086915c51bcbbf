#include "bench/collectives/point.h"

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"

namespace lockstep {

BenchPoint::BenchPoint(const BenchGroups& groups, const OperationEntry& entry,
                       const BenchOptions& options, const PointSpec& spec)
    : groups_(groups),
      comm_(groups.mine()),
      entry_(entry),
      options_(options),
      spec_(spec),
      operations_(groups, entry, options, spec) {}

std::string BenchPoint::add(const std::string& name, const LinkModel& links) {
  const Slice like{.count = problem_.count, .dtype = spec_.dtype, .device = options_.device};
  const AnyAlgorithm& algorithm =
      usable_algorithm(entry_.algorithms, entry_.operation, name, comm_, like);
  if (algorithm.need == Need::vendor) {
    lacks_ = comm_.transport().vendor()->lacks(entry_.operation, spec_.dtype, problem_.count);
    if (!lacks_.empty()) return lacks_;
  }
  for (const bool in_place : {false, true}) {
    if (in_place && !entry_.in_place) continue;
    if (options_.placements == (in_place ? Placements::out_of_place : Placements::in_place))
      continue;
    BenchResult& result = add_result(name, comm_.transport().name(), in_place);
    result.chosen = algorithm.name;
    result.equal_work = has_equal_work(algorithm);
    result.wrong = options_.checks > 0 ? operations_.wrong(algorithm, in_place) : -1;
    Problem modelled = problem_;
    if (algorithm.ranks > 0) modelled.ranks = algorithm.ranks;
    if (algorithm.seconds && options_.communicators == 1)
      result.model = estimate(algorithm, modelled, links);
    compared_.push_back(operations_.timed(algorithm, in_place));
  }
  return "";
}

double BenchPoint::cold_seconds(const std::string& name) {
  const Slice like{.count = problem_.count, .dtype = spec_.dtype, .device = options_.device};
  const AnyAlgorithm& algorithm =
      usable_algorithm(entry_.algorithms, entry_.operation, name, comm_, like);
  if (algorithm.need == Need::vendor &&
      !comm_.transport().vendor()->lacks(entry_.operation, spec_.dtype, problem_.count).empty())
    return 0;
  double seconds = run_once(groups_.world(), operations_.timed_once(algorithm));
  all_reduce(groups_.world(), host_slice(std::span(&seconds, 1)), ReduceOp::max,
             "recursive_doubling");
  return seconds;
}

std::string BenchPoint::add(Peer& peer) {
  if (comm_.rank() == 0) peer.next_point();
  barrier(comm_);
  if (const std::string lacks = peer.lacks(); !lacks.empty()) return lacks;
  for (const bool in_place : {false, true}) {
    if (in_place && !entry_.in_place) continue;
    BenchResult& result = add_result(peer.library(), peer.transport(), in_place);
    result.chosen = "vendor";
    result.wrong = options_.checks > 0 ? peer.wrong(in_place) : -1;
    compared_.push_back({.prepare = {}, .operation = {}, .elsewhere = [&peer, in_place] {
                           return peer.run(in_place);
                         }});
  }
  return "";
}

std::vector<BenchResult> BenchPoint::measured() {
  compared_.push_back(operations_.timed_copy());
  std::vector<OwnRuns> runs;
  const auto seconds = measure(groups_.world(), options_.warmup, options_.iterations, compared_,
                               options_.whose, &runs);
  auto own_runs = runs.begin();
  auto own = seconds.begin();
  for (BenchResult& result : results_) {
    if (!result.seconds.empty()) continue;
    for (const double iteration : *own++)
      result.seconds.push_back(iteration / options_.operations_per_iteration);
    result.group_seconds = groups_.longest(own_runs->seconds);
    result.own = std::move(*own_runs++);
    // Its communicators wait at the same time, so their waits are no part of the rank's time.
    if (options_.communicators > 1) result.own.forget_waits();
    result.copy_seconds = percentile(seconds.back(), 0.5);
  }
  return std::move(results_);
}

// In real time, ranks that show each other their data also do the same work. Calls of a library
// hide the time in which they wait.
bool BenchPoint::has_equal_work(const AnyAlgorithm& algorithm) const {
  return options_.communicators == 1 && !entry_.has_root && problem_.counts.empty() &&
         problem_.ranks == comm_.size() &&
         (algorithm.ranks_are_equal || algorithm.need == Need::shared_memory);
}

void BenchPoint::serve(PeerServer& server) {
  std::vector<double> wrong;
  for (const BenchResult& result : results_) wrong.push_back(result.wrong);
  server.serve(comm_, compared_, wrong, lacks_);
}

BenchResult& BenchPoint::add_result(std::string_view name, std::string_view transport,
                                    bool in_place) {
  results_.push_back({.algorithm = std::string(name),
                      .transport = std::string(transport),
                      .problem = problem_,
                      .dtype = spec_.dtype,
                      .op = spec_.op,
                      .is_scaled = spec_.is_scaled,
                      .in_place = in_place,
                      .communicators = options_.communicators});
  return results_.back();
}

}  // namespace lockstep
