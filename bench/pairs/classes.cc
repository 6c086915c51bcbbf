#include "bench/pairs/classes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace lockstep {
namespace {

// Units joined by links, each block named by one of its units.
class Blocks {
 public:
  explicit Blocks(int units) : parent_(static_cast<std::size_t>(units)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int of(int unit) {
    int& parent = parent_[static_cast<std::size_t>(unit)];
    return parent == unit ? unit : parent = of(parent);
  }
  void join(int a, int b) { parent_[static_cast<std::size_t>(of(a))] = of(b); }

  // At least two blocks have two units or more, and most units are in such blocks.
  bool are_level() {
    std::map<int, int> sizes;
    const int units = static_cast<int>(parent_.size());
    for (int unit = 0; unit < units; ++unit) ++sizes[of(unit)];
    int shared = 0, together = 0;
    for (const auto& [block, size] : sizes)
      if (size >= 2) ++shared, together += size;
    return shared >= 2 && 2 * together > units;
  }

 private:
  std::vector<int> parent_;
};

// Whether two neighbours in the sorted latencies differ by more than noise does.
bool is_gap(const MeasuredTime& below, const MeasuredTime& above) {
  constexpr double least_factor = 1.25, errors = 5;
  const double excess = above.seconds - below.seconds;
  const auto exceeds = [&](double error) {
    return !std::isfinite(error) || excess > errors * error;
  };
  return above.seconds > least_factor * below.seconds && exceeds(below.error) &&
         exceeds(above.error);
}

}  // namespace

std::vector<int> classes_of(int units, std::span<const UnitLatency> links) {
  std::vector<std::size_t> order(links.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return links[i].time.seconds; });
  std::vector<int> classes(links.size(), 0);
  Blocks blocks(units);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const UnitLatency& link = links[order[i]];
    blocks.join(link.first, link.second);
    if (!is_gap(link.time, links[order[i + 1]].time) || !blocks.are_level()) continue;
    for (std::size_t k = 0; k < links.size(); ++k)
      if (blocks.of(links[k].first) != blocks.of(links[k].second)) ++classes[k];
  }
  return classes;
}

}  // namespace lockstep
