#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "bench/pairs/pairs.h"
#include "bench/results/environment.h"
#include "bench/results/timed_rows.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string name_of(const PairsRun& run, std::string_view what, Count bytes,
                    const std::string& which) {
  return fmt::format("pairs/{}/{}/ranks:{}/bytes:{}{}", what, run.transport, run.sites.size(),
                     bytes, which);
}

std::string_view name_of(SlowPart part) {
  switch (part) {
    case SlowPart::unit:
      return "unit";
    case SlowPart::sending:
      return "sending";
    case SlowPart::receiving:
      return "receiving";
    case SlowPart::cable:
      return "cable";
    case SlowPart::one_way:
      return "one_way";
  }
  return "unknown";
}

ordered_json links_json(const PairsRun& run, const PairsOptions& options) {
  const double bytes = static_cast<double>(options.large_bytes) * options.window;
  ordered_json links = ordered_json::array();
  for (const MeasuredLink& link : run.links) {
    const auto seconds = [&](LinkTest test) { return judged_time(link.of(test)).seconds; };
    const auto rate = [&](double moved, LinkTest test) {
      return seconds(test) > 0 ? moved / seconds(test) / 1e9 : 0;
    };
    links.push_back({{"from", link.ranks.first},
                     {"to", link.ranks.second},
                     {"in_host", run.groups[static_cast<std::size_t>(link.group)].is_one_host},
                     {"class", link.link_class},
                     {"classes", link.classes},
                     {"latency_us", seconds(LinkTest::latency) * 1e6},
                     {"gb_per_s", rate(bytes, LinkTest::forward)},
                     {"back_gb_per_s", rate(bytes, LinkTest::backward)},
                     {"both_ways_gb_per_s", rate(2 * bytes, LinkTest::both_ways)}});
  }
  return links;
}

ordered_json slow_json(const PairsRun& run) {
  ordered_json list = ordered_json::array();
  for (const SlowFinding& finding : run.slow) {
    const SlowLink& slow = finding.slow;
    ordered_json entry = {{"part", name_of(slow.part)}, {"from", slow.from}, {"to", slow.to}};
    entry["hosts"] = ordered_json::array({run.sites[static_cast<std::size_t>(slow.from)].host});
    if (slow.to != slow.from)
      entry["hosts"].push_back(run.sites[static_cast<std::size_t>(slow.to)].host);
    entry["in_host"] = finding.is_in_host;
    entry["ratio"] = slow.ratio;
    if (slow.of > 0) entry["slow_links"] = slow.slow, entry["links"] = slow.of;
    entry["ratios"] = ordered_json::object();
    for (const auto& [name, ratio] : finding.ratios) entry["ratios"][name] = ratio;
    entry["text"] = text_of(run, finding);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

void add_links(ordered_json& file, const PairsRun& run, const PairsOptions& options) {
  file["ranks"] = ordered_json::array();
  for (const RankSite& site : run.sites)
    file["ranks"].push_back(
        {{"rank", file["ranks"].size()}, {"host", site.host}, {"device", site.device}});
  file["links"] = links_json(run, options);
  file["slow_links"] = slow_json(run);
}

std::vector<TimedRow> rows_of(const PairsRun& run, const PairsOptions& options) {
  std::vector<TimedRow> rows;
  const Count small = options.small_bytes, large = options.large_bytes;
  const int window = options.window;
  const auto add = [&](std::string_view what, Count bytes, int messages, const std::string& which,
                       const std::vector<double>& seconds) {
    const auto of_message = static_cast<double>(bytes);
    const double typical = percentile(seconds, 0.5);
    rows.push_back(
        {.name = name_of(run, what, bytes, which),
         .seconds = &seconds,
         .counters = {{"ranks", static_cast<double>(run.sites.size())},
                      {"bytes", of_message},
                      {"messages", messages},
                      {"gb_per_s", typical > 0 ? of_message * messages / typical / 1e9 : 0}}});
  };
  for (const MeasuredLink& link : run.links) {
    const auto ends = [&](int from, int to) { return fmt::format("/from:{}/to:{}", from, to); };
    const auto [a, b] = link.ranks;
    const std::string windows = fmt::format("/window:{}", window);
    add("latency", small, 1, ends(a, b), link.of(LinkTest::latency));
    add("one_way", large, window, windows + ends(a, b), link.of(LinkTest::forward));
    add("one_way", large, window, windows + ends(b, a), link.of(LinkTest::backward));
    add("both_ways", large, 2 * window, windows + ends(a, b), link.of(LinkTest::both_ways));
  }
  for (const FabricTest& test : run.tests)
    add(test.name, test.name == "message_rate" ? small : large, test.messages,
        fmt::format("/window:{}/pairs:{}", window, test.pairs), test.seconds);
  return rows;
}

std::string pairs_json(const PairsRun& run, const PairsOptions& options,
                       const LaunchOptions& world) {
  auto environment = environment_json(world.device);
  if (!run.library.empty()) environment["mpi"] = run.library;
  std::map<std::string, std::string> context = {
      {"lockstep.environment", json_line(environment)},
      {"lockstep.clock", std::string(name_of(world.clock))},
      {"lockstep.device", std::string(options.device->name())}};
  if (world.clock != Clock::wall) context["lockstep.link"] = text_of(world.links);
  std::vector<std::string> planted;
  for (const LinkSlowdown& each : world.slow_links) planted.push_back(text_of(each));
  if (!planted.empty()) context["lockstep.slow_link"] = fmt::format("{}", fmt::join(planted, ","));
  auto file = timed_rows_json(rows_of(run, options), context);
  add_links(file, run, options);
  return json_text(file);
}

}  // namespace lockstep
