#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "bench/pairs/pairs.h"

namespace lockstep {
namespace {

constexpr int most_printed_ranks = 16;

double typical(const std::vector<double>& samples) { return judged_time(samples).seconds; }

// "-" for a link without cost.
std::string rate_text(double amount, double seconds, double unit) {
  return seconds > 0 ? fmt::format("{:.2f}", amount / seconds / unit) : "-";
}

std::string gb_per_s(double bytes, double seconds) { return rate_text(bytes, seconds, 1e9); }

std::string matrix_text(const std::string& title,
                        const std::vector<std::vector<std::string>>& cells) {
  std::string text = fmt::format("\n# {}\n{:>8}", title, "");
  for (std::size_t column = 0; column < cells.size(); ++column)
    text += fmt::format("{:>9}", column);
  for (std::size_t row = 0; row < cells.size(); ++row) {
    text += fmt::format("\n{:>8}", row);
    for (const std::string& cell : cells[row]) text += fmt::format("{:>9}", cell);
  }
  return text + "\n";
}

std::string matrices(const PairsRun& run, double window_bytes) {
  const std::size_t ranks = run.sites.size();
  if (ranks > most_printed_ranks) return "";
  const std::vector<std::vector<std::string>> none(ranks, std::vector<std::string>(ranks));
  auto latency = none, one_way = none;
  for (const MeasuredLink& link : run.links) {
    const auto a = static_cast<std::size_t>(link.ranks.first),
               b = static_cast<std::size_t>(link.ranks.second);
    latency[a][b] = latency[b][a] =
        fmt::format("{:.2f}", typical(link.of(LinkTest::latency)) * 1e6);
    one_way[a][b] = gb_per_s(window_bytes, typical(link.of(LinkTest::forward)));
    one_way[b][a] = gb_per_s(window_bytes, typical(link.of(LinkTest::backward)));
  }
  return matrix_text("latency between two ranks, us", latency) +
         matrix_text("bandwidth from a rank (row) to a rank (column), GB/s", one_way);
}

double middle(std::vector<double> values) { return percentile(std::move(values), 0.5); }

std::string classes_text(const PairsRun& run, double window_bytes) {
  struct Class {
    std::vector<double> latency, one_way, both_ways;
  };
  std::map<std::tuple<bool, int, int>, Class> classes;  // those inside hosts last
  for (const MeasuredLink& link : run.links) {
    const bool in_host = run.groups[static_cast<std::size_t>(link.group)].is_one_host;
    Class& own = classes[{in_host, link.classes, link.link_class}];
    own.latency.push_back(typical(link.of(LinkTest::latency)));
    for (const LinkTest test : {LinkTest::forward, LinkTest::backward})
      own.one_way.push_back(typical(link.of(test)));
    own.both_ways.push_back(typical(link.of(LinkTest::both_ways)));
  }
  std::string text = fmt::format("\n# {:<36}{:>8}{:>12}{:>14}{:>16}\n", "medians of links", "links",
                                 "latency us", "one way GB/s", "both ways GB/s");
  for (const auto& [key, own] : classes) {
    const auto& [in_host, of, number] = key;
    std::string name = in_host ? "inside a host" : "between hosts";
    if (of > 1) name += fmt::format(", distance {} of {}", number + 1, of);
    text += fmt::format("  {:<36}{:>8}{:>12.2f}{:>14}{:>16}\n", name, own.latency.size(),
                        middle(own.latency) * 1e6, gb_per_s(window_bytes, middle(own.one_way)),
                        gb_per_s(2 * window_bytes, middle(own.both_ways)));
  }
  return text;
}

std::string test_text(const PairsRun& run, const FabricTest& test) {
  const double seconds = middle(test.seconds);
  if (test.name == "bisection_at_once")
    return fmt::format("bisection: {} pair{} at once, both ways: {} GB/s together, {:.1f} us",
                       test.pairs, test.pairs == 1 ? "" : "s", gb_per_s(test.bytes, seconds),
                       seconds * 1e6);
  if (test.name == "bisection_alone")
    return fmt::format("bisection: the slowest of these pairs alone: {} GB/s, {:.1f} us",
                       gb_per_s(test.bytes, seconds), seconds * 1e6);
  if (test.name == "incast")
    return fmt::format("incast: {} rank{} to rank 0: {} GB/s", test.pairs,
                       test.pairs == 1 ? "" : "s", gb_per_s(test.bytes, seconds));
  if (test.name == "message_rate")
    return fmt::format("message rate: {} pair{}: {} million messages/s", test.pairs,
                       test.pairs == 1 ? "" : "s", rate_text(test.messages, seconds, 1e6));
  // All that the transfer adds to the computing was not hidden.
  const double hidden = run.computing > 0 ? std::clamp(2 - seconds / run.computing, 0.0, 1.0) : 1;
  return fmt::format(
      "overlap: the bisection takes {:.1f} us next to {:.1f} us of computing: {:.0f} % of "
      "it hidden",
      seconds * 1e6, run.computing * 1e6, 100 * hidden);
}

}  // namespace

std::string table_of(const PairsRun& run, const PairsOptions& options, const LaunchOptions& world) {
  const double window_bytes = static_cast<double>(options.large_bytes) * options.window;
  std::string text = fmt::format(
      "# pairs among {} ranks over {}: {} links in {} round{} of disjoint pairs\n"
      "# warm-up {}   iterations {}   latency of {} bytes   windows of {} messages of {} bytes\n",
      run.sites.size(), run.transport, run.links.size(), run.rounds, run.rounds == 1 ? "" : "s",
      options.warmup, options.iterations, options.small_bytes, options.window, options.large_bytes);
  text += matrices(run, window_bytes) + classes_text(run, window_bytes) + "\n";
  for (const FabricTest& test : run.tests) text += "# " + test_text(run, test) + "\n";
  text += "\n";
  for (const SlowFinding& finding : run.slow) text += "slow: " + text_of(run, finding) + "\n";
  if (world.clock != Clock::unit && options.iterations < static_cast<int>(fewest_samples))
    text += fmt::format("# no link is judged: that takes -n {} or more\n", fewest_samples);
  else if (run.slow.empty())
    text += "# no link is slow\n";
  return text;
}

}  // namespace lockstep
