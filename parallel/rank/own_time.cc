#include "parallel/rank/own_time.h"

#include <algorithm>
#include <span>

#include "collectives/base/batch_means.h"

namespace lockstep {

void OwnTimes::add(double seconds, double exposed, double late) {
  const double waited = std::max(0.0, exposed - late);
  own_.push_back(seconds - waited);
  waited_.push_back(waited);
  busy_ += seconds - exposed;
}

OwnTime OwnTimes::mean() const {
  if (own_.empty()) return {};
  const auto later = [](const std::vector<double>& steps) {
    return std::span(steps).subspan(steps.size() > 1 ? 1 : 0);
  };
  const SampleMean own = mean_of(later(own_));
  return {.steps = static_cast<int>(later(own_).size()),
          .seconds = own.value,
          .error = own.error,
          .waited = mean_of(later(waited_)).value,
          .first = own_.front()};
}

std::vector<WaitedFor> longest_waits(const Communicator& world) {
  const WaitTimes* const waits = world.transport().waits();
  std::vector<WaitedFor> longest;
  if (!waits) return longest;
  for (const WaitTimes::Waited& waited : waits->by_peer())
    longest.push_back({.rank = waited.peer, .seconds = waited.seconds});
  std::ranges::stable_sort(longest, std::ranges::greater{}, &WaitedFor::seconds);
  constexpr std::size_t most = 100;  // a file must not hold every pair of a large world
  if (longest.size() > most) longest.resize(most);
  return longest;
}

double late_seconds(const Communicator& world) {
  const WaitTimes* const waits = world.transport().waits();
  return waits ? waits->late_seconds() : 0;
}

}  // namespace lockstep
