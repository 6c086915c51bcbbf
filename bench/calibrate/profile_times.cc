#include "bench/calibrate/profile_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

double work_of(double operations, double bytes) {
  return std::max(1.0, operations > 0 ? operations : bytes);
}

std::array<double, 4> place_of(const std::array<Count, 3>& shape, double work) {
  return {std::log(static_cast<double>(shape[0])), std::log(static_cast<double>(shape[1])),
          std::log(static_cast<double>(shape[2])), std::log(work)};
}

double squared_distance(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace

KernelTimes::KernelTimes(const MachineProfile& profile, double OwnSeconds::*time)
    : between_kernels_(profile.between_kernels.*time) {
  for (const MeasuredKernel& kernel : profile.kernels) {
    if (time == &OwnSeconds::issue && kernel.seconds.issue == 0) continue;
    require(
        kernel.seconds.*time > 0,
        [&] {
          return fmt::format("the profile has no time of {} on ranks that take turns",
                             printable(kernel.name));
        },
        "an older version has written it: lockstep calibrate");
    const double work = work_of(kernel.operations, kernel.bytes);
    points_[{kernel.name, kernel.dtype}].push_back(
        {place_of(kernel.shape, work), kernel.seconds.*time / work});
  }
}

double KernelTimes::seconds(const KernelCall& call) {
  const double work = work_of(call.operations, call.bytes);
  const Place place = place_of(call.shape, work);
  const Kind kind(call.name, call.dtype);
  if (const auto known = known_.find({kind, place}); known != known_.end()) return known->second;
  const auto found = points_.find(kind);
  require(
      found != points_.end(),
      [&] {
        return fmt::format("the profile has no time of the kernel {} in {}", printable(kind.first),
                           name_of(kind.second));
      },
      "measure this model: lockstep calibrate --model MODEL, with its --dtype and --ranks");
  std::vector<std::pair<double, double>> nearest;  // squared distance, seconds for a unit
  for (const Point& point : found->second)
    nearest.emplace_back(squared_distance(place, point.place), point.per_unit);
  std::ranges::sort(nearest);
  constexpr std::size_t most_used = 4;
  constexpr double same = 1e-18;
  nearest.resize(nearest.front().first < same ? 1 : std::min(most_used, nearest.size()));
  double weights = 0, sum = 0;
  for (const auto& [distance, per_unit] : nearest) {
    const double weight = 1 / std::max(same, distance * distance);
    weights += weight;
    sum += weight * per_unit;
  }
  return known_[{kind, place}] = work * sum / weights;
}

CollectiveTimes::CollectiveTimes(const MachineProfile& profile, std::string transport)
    : transport_(std::move(transport)) {
  for (const MeasuredCollective& c : profile.collectives)
    if (c.transport == transport_)
      seconds_[{c.operation, c.algorithm, c.ranks}][c.bytes] = c.seconds;
}

double CollectiveTimes::seconds(std::string_view operation, std::string_view algorithm, int ranks,
                                double bytes) const {
  const auto found = seconds_.find({std::string(operation), std::string(algorithm), ranks});
  require(
      found != seconds_.end(),
      [&] {
        return fmt::format(
            "the profile has no time of {} with the algorithm {} on {} ranks over {}", operation,
            printable(algorithm), ranks, transport_);
      },
      transport_ == "threads" || transport_ == "nccl"
          ? "calibrate measures auto and ring: lockstep calibrate --ranks N, for groups of N ranks"
          : "calibrate adds auto and ring of N ranks to the file: mpirun -n N lockstep calibrate "
            "--json FILE");
  const std::map<double, double>& sizes = found->second;
  const auto after = sizes.lower_bound(bytes);
  if (after == sizes.begin()) return after->second;
  const auto& [less, at_less] = *std::prev(after);
  if (after == sizes.end()) return at_less * bytes / less;
  const double share = std::log(bytes / less) / std::log(after->first / less);
  return at_less * std::pow(after->second / at_less, share);
}

}  // namespace lockstep
