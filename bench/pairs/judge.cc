// Which links are slow, from the measured times of all.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "bench/pairs/classes.h"
#include "bench/pairs/pairs.h"
#include "collectives/base/batch_means.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

struct NamedTest {
  const char* name;
  bool directed;
  std::vector<LinkTest> tests;  // of both directions
};

const std::vector<NamedTest>& named_tests() {
  static const std::vector<NamedTest> tests = {
      {"latency", false, {LinkTest::latency}},
      {"one way", true, {LinkTest::forward, LinkTest::backward}},
      {"both ways", false, {LinkTest::both_ways}}};
  return tests;
}

std::vector<LinkTime> times_of(const PairsRun& run, bool in_host, const NamedTest& named,
                               Clock clock) {
  std::map<std::pair<int, int>, int> numbers;  // by classes and class
  std::vector<LinkTime> times;
  for (const MeasuredLink& link : run.links) {
    if (run.groups[static_cast<std::size_t>(link.group)].is_one_host != in_host) continue;
    if (clock != Clock::unit && link.of(LinkTest::latency).size() < fewest_samples) continue;
    const int number =
        numbers.try_emplace({link.classes, link.link_class}, static_cast<int>(numbers.size()))
            .first->second;
    for (const LinkTest test : named.tests) {
      LinkTime& time = times.emplace_back();
      time = {.from = link.ranks.first,
              .to = link.ranks.second,
              .link_class = number,
              .time = judged_time(link.of(test)),
              .fastest = std::ranges::min(link.of(test))};
      if (test == LinkTest::backward) std::swap(time.from, time.to);
    }
  }
  return times;
}

bool is_unit(const SlowLink& slow) { return slow.from == slow.to; }

// Adds what one measurement found to what others did. What is slow in one direction only is more
// precise than the same without a direction.
void add(std::vector<SlowFinding>& found, const SlowLink& slow, bool in_host,
         const NamedTest& named) {
  const auto ends = [](const SlowLink& each) { return std::minmax(each.from, each.to); };
  auto same = std::ranges::find_if(
      found, [&](const SlowFinding& each) { return ends(each.slow) == ends(slow); });
  if (same == found.end())
    same = found.insert(found.end(), {.slow = slow, .is_in_host = in_host, .ratios = {}});
  const double most = std::max(same->slow.ratio, slow.ratio);
  if (named.directed) same->slow = slow;
  same->slow.ratio = most;
  same->ratios.emplace_back(named.name, slow.ratio);
}

// A link of a slow unit is no finding of its own.
void drop_links_of_units(std::vector<SlowFinding>& found) {
  std::vector<int> units;
  for (const SlowFinding& each : found)
    if (is_unit(each.slow)) units.push_back(each.slow.from);
  std::erase_if(found, [&](const SlowFinding& each) {
    return !is_unit(each.slow) && (std::ranges::count(units, each.slow.from) > 0 ||
                                   std::ranges::count(units, each.slow.to) > 0);
  });
}

}  // namespace

MeasuredTime judged_time(const std::vector<double>& samples) {
  const double middle = percentile(samples, 0.5);
  std::vector<double> faster;
  for (const double sample : samples)
    if (sample <= middle) faster.push_back(sample);
  const SampleMean mean = mean_of(faster);
  return {.seconds = mean.value, .error = mean.error};
}

void find_classes(PairsRun& run) {
  for (std::size_t number = 0; number < run.groups.size(); ++number) {
    const std::vector<int>& ranks = run.groups[number].ranks;
    const auto unit = [&](int rank) {
      return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
    };
    std::vector<MeasuredLink*> links;
    std::vector<UnitLatency> latencies;
    for (MeasuredLink& link : run.links) {
      if (link.group != static_cast<int>(number)) continue;
      links.push_back(&link);
      latencies.push_back({.first = unit(link.ranks.first),
                           .second = unit(link.ranks.second),
                           .time = judged_time(link.of(LinkTest::latency))});
    }
    const std::vector<int> classes = classes_of(static_cast<int>(ranks.size()), latencies);
    for (std::size_t i = 0; i < links.size(); ++i) {
      links[i]->link_class = classes[i];
      links[i]->classes = 1 + *std::ranges::max_element(classes);
    }
  }
}

std::vector<SlowFinding> find_slow(const PairsRun& run, const PairsOptions& options, Clock clock) {
  // There are many links, and one false alarm is too much.
  const OutlierRule rule{
      .score = 5,
      .share = options.effect,
      .long_seconds = clock == Clock::unit ? 0 : std::numeric_limits<double>::infinity()};
  std::vector<SlowFinding> found;
  for (const bool in_host : {false, true}) {
    std::vector<SlowFinding> here;
    for (const NamedTest& named : named_tests())
      for (const SlowLink& slow :
           slow_links(static_cast<int>(run.sites.size()), times_of(run, in_host, named, clock),
                      named.directed, rule))
        add(here, slow, in_host, named);
    drop_links_of_units(here);
    std::ranges::stable_sort(here, std::ranges::greater{}, [](const SlowFinding& each) {
      return std::pair(is_unit(each.slow), each.slow.ratio);
    });
    found.insert(found.end(), here.begin(), here.end());
  }
  return found;
}

std::string described(const PairsRun& run, int rank) {
  const auto host = [&](const RankSite& site) { return site.host; };
  const std::string& own = run.sites[static_cast<std::size_t>(rank)].host;
  return std::ranges::count(run.sites, own, host) == 1
             ? fmt::format("host {} (rank {})", printable(own), rank)
             : fmt::format("rank {} (host {})", rank, printable(own));
}

std::string text_of(const PairsRun& run, const SlowFinding& finding) {
  const SlowLink& slow = finding.slow;
  std::string ratios;
  for (const auto& [name, ratio] : finding.ratios)
    ratios += fmt::format("{}{} {:.2f} times", ratios.empty() ? "" : ", ", name, ratio);
  ratios += " the usual time of such links";
  if (is_unit(slow)) {
    const char* const way = slow.part == SlowPart::sending     ? "sends slowly to"
                            : slow.part == SlowPart::receiving ? "receives slowly from"
                                                               : "is slow with";
    return fmt::format("{} {} {} of {} others: its link; {}", described(run, slow.from), way,
                       slow.slow, slow.of, ratios);
  }
  const bool one_way = slow.part == SlowPart::one_way;
  return fmt::format("{} {} {}{}: that cable{}; {}", described(run, slow.from),
                     one_way ? "to" : "and", described(run, slow.to),
                     one_way             ? ", in this direction only"
                     : slow.is_only_link ? ""
                                         : " only",
                     slow.is_only_link ? ", or the link of one of them" : "", ratios);
}

}  // namespace lockstep
