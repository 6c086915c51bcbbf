#include "bench/pairs/slow_links.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace lockstep {
namespace {

// A link's time relative to the fast links of its class.
struct Ratio {
  LinkTime link;
  MeasuredTime ratio;
  double fastest = 0;
};

std::vector<Ratio> ratios_of(std::span<const LinkTime> links) {
  std::map<int, std::vector<double>> classes;
  for (const LinkTime& link : links) classes[link.link_class].push_back(link.time.seconds);
  for (auto& [number, seconds] : classes) std::ranges::sort(seconds);
  std::vector<Ratio> ratios;
  for (const LinkTime& link : links) {
    const std::vector<double>& seconds = classes[link.link_class];
    if (seconds.size() < fewest_compared) continue;
    const double fast = seconds[(seconds.size() - 1) / 4];
    if (fast <= 0) continue;  // links without cost
    ratios.push_back(
        {.link = link,
         .ratio = {.seconds = link.time.seconds / fast, .error = link.time.error / fast},
         .fastest = link.fastest / fast});
  }
  return ratios;
}

// Of one link alone, either end may be slow, or the link.
constexpr std::size_t fewest_links_of_unit = 2;

// Which end of a link belongs to a unit.
enum class End { from, to, either };

bool touches(const LinkTime& link, int unit, End end) {
  return (end != End::to && link.from == unit) || (end != End::from && link.to == unit);
}

struct Units {
  std::vector<int> numbers;  // those with links enough to be judged
  std::vector<MeasuredTime> times;
  std::vector<double> fastest;
};

// Whether a time is that of an outlier, although it is the fastest of several.
bool is_slow(double fastest, const Outlier& outlier, const OutlierRule& rule) {
  return fastest > (1 + rule.share) * outlier.median;
}

// Each unit with the lower medians over its links.
Units units_of(int units, const std::vector<Ratio>& ratios, End end) {
  Units found;
  for (int unit = 0; unit < units; ++unit) {
    std::vector<MeasuredTime> own;
    std::vector<double> fastest;
    for (const Ratio& each : ratios) {
      if (!touches(each.link, unit, end)) continue;
      own.push_back(each.ratio);
      fastest.push_back(each.fastest);
    }
    if (own.size() < fewest_links_of_unit) continue;
    std::ranges::sort(own, {}, &MeasuredTime::seconds);
    found.numbers.push_back(unit);
    found.times.push_back(own[(own.size() - 1) / 2]);
    found.fastest.push_back(lower_median(fastest));
  }
  return found;
}

std::vector<SlowLink> slow_units(int units, const std::vector<Ratio>& ratios, End end,
                                 const OutlierRule& rule) {
  const Units compared = units_of(units, ratios, end);
  std::vector<SlowLink> found;
  for (const Outlier& outlier : find_outliers(compared.times, rule)) {
    if (!is_slow(compared.fastest[outlier.index], outlier, rule)) continue;
    const int unit = compared.numbers[outlier.index];
    SlowLink slow{.part = end == End::from ? SlowPart::sending
                          : end == End::to ? SlowPart::receiving
                                           : SlowPart::unit,
                  .from = unit,
                  .to = unit,
                  .ratio = outlier.seconds / outlier.median};
    for (const Ratio& each : ratios) {
      if (!touches(each.link, unit, end)) continue;
      ++slow.of;
      if (each.ratio.seconds > (1 + rule.share) * outlier.median) ++slow.slow;
    }
    found.push_back(slow);
  }
  return found;
}

// Whether a link is slow even for the links of each of its ends. If one of these is slow now and
// then, any of its links may be the slowest by chance.
bool is_slow_for_its_ends(const Ratio& own, const std::vector<Ratio>& ratios,
                          const OutlierRule& rule) {
  return std::ranges::all_of(std::array{own.link.from, own.link.to}, [&](int end) {
    std::vector<double> others;
    for (const Ratio& each : ratios)
      if (touches(each.link, end, End::either) &&
          std::minmax(each.link.from, each.link.to) != std::minmax(own.link.from, own.link.to))
        others.push_back(each.ratio.seconds);
    return exceeds(own.ratio.seconds, std::move(others), rule);
  });
}

// Whether all judged links of the unit lead to one other.
bool has_one_link(int unit, const std::vector<Ratio>& ratios) {
  std::set<int> others;
  for (const Ratio& each : ratios)
    if (touches(each.link, unit, End::either)) others.insert(each.link.from + each.link.to - unit);
  return others.size() == 1;
}

// Takes what is slow in both directions as one.
void merge(std::vector<SlowLink>& found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    SlowLink& first = found[i];
    const bool is_unit = first.part == SlowPart::sending || first.part == SlowPart::receiving;
    if (!is_unit && first.part != SlowPart::one_way) continue;
    const auto other = std::find_if(
        found.begin() + static_cast<std::ptrdiff_t>(i) + 1, found.end(), [&](const SlowLink& each) {
          return is_unit ? each.from == first.from && each.to == first.from &&
                               each.part != first.part && each.part != SlowPart::one_way
                         : each.part == SlowPart::one_way && each.from == first.to &&
                               each.to == first.from;
        });
    if (other == found.end()) continue;
    first.part = is_unit ? SlowPart::unit : SlowPart::cable;
    if (!is_unit && first.from > first.to) std::swap(first.from, first.to);
    first.ratio = std::max(first.ratio, other->ratio);
    first.slow = std::max(first.slow, other->slow);
    first.of = std::max(first.of, other->of);
    found.erase(other);
  }
}

}  // namespace

std::vector<SlowLink> slow_links(int units, std::span<const LinkTime> links, bool directed,
                                 const OutlierRule& rule) {
  const std::vector<Ratio> ratios = ratios_of(links);
  std::vector<SlowLink> found;
  std::vector<Ratio> others = ratios;
  for (const End end : directed ? std::vector{End::from, End::to} : std::vector{End::either})
    for (const SlowLink& slow : slow_units(units, ratios, end, rule)) {
      found.push_back(slow);
      std::erase_if(others, [&](const Ratio& each) { return touches(each.link, slow.from, end); });
    }
  std::vector<MeasuredTime> times;
  for (const Ratio& each : others) times.push_back(each.ratio);
  const auto first_link = std::ssize(found);
  const std::size_t links_judged = directed ? times.size() / 2 : times.size();
  if (links_judged < fewest_links) times.clear();
  for (const Outlier& outlier : find_outliers(times, rule)) {
    const Ratio& own = others[outlier.index];
    if (!is_slow(own.fastest, outlier, rule) || !is_slow_for_its_ends(own, others, rule)) continue;
    const LinkTime& link = own.link;
    found.push_back(
        {.part = directed ? SlowPart::one_way : SlowPart::cable,
         .from = link.from,
         .to = link.to,
         .ratio = outlier.seconds / outlier.median,
         .is_only_link = has_one_link(link.from, ratios) || has_one_link(link.to, ratios)});
  }
  std::stable_sort(found.begin(), found.begin() + first_link,
                   [](const SlowLink& a, const SlowLink& b) { return a.ratio > b.ratio; });
  merge(found);
  return found;
}

}  // namespace lockstep
