#include "parallel/rank/own_time.h"

#include <algorithm>

#include "collectives/base/batch_means.h"

namespace lockstep {

void OwnTimes::add(double seconds, double exposed, double late) {
  // A step that is all waiting is rounded to a little less than its parts.
  const double waited = std::max(0.0, exposed - late), own = std::max(0.0, seconds - waited);
  busy_ += seconds - exposed;
  if (steps_++ == 0) {
    first_own_ = own, first_waited_ = waited;
    return;
  }
  own_ += own, waited_ += waited, open_batch_ += own;
  if (++in_open_batch_ < per_batch_) return;
  batches_.push_back(open_batch_ / per_batch_);
  open_batch_ = in_open_batch_ = 0;
  constexpr std::size_t most = 16;
  if (batches_.size() < most) return;
  for (std::size_t i = 0; i < most / 2; ++i)
    batches_[i] = (batches_[2 * i] + batches_[2 * i + 1]) / 2;
  batches_.resize(most / 2);
  per_batch_ *= 2;
}

OwnTime OwnTimes::mean() const {
  if (steps_ == 0) return {};
  const int later = steps_ - 1;
  return {.steps = std::max(later, 1),
          .seconds = later > 0 ? own_ / later : first_own_,
          .error = mean_of(batches_).error,
          .waited = later > 0 ? waited_ / later : first_waited_,
          .first = first_own_};
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
