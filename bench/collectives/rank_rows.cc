#include "bench/collectives/rank_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/batch_means.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/report_label.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

double mean(const std::vector<double>& samples) { return mean_of(samples).value; }

// Replaces the time at the barrier by how much later than the first rank this one arrived.
void compare_arrivals(Communicator& world, std::vector<OwnRuns>& own) {
  std::vector<double> held;
  for (const OwnRuns& runs : own) held.insert(held.end(), runs.held.begin(), runs.held.end());
  if (held.empty()) return;
  all_reduce(world, host_slice(std::span(held)), ReduceOp::max, "recursive_doubling");
  if (std::ranges::any_of(held, [](double each) { return !std::isfinite(each); }))
    throw Error(ErrorKind::wrong_result,
                "the times of the ranks became NaN on their way to each other");
  auto longest = held.begin();
  for (OwnRuns& runs : own)
    for (double& own_held : runs.held) own_held = *longest++ - own_held;
}

json row_of(const BenchResult& result, int operations) {
  const OwnRuns& runs = result.own;
  const SampleMean own = mean_of(runs.own);
  std::vector<std::pair<double, int>> peers;
  const auto iterations = static_cast<double>(std::max<std::size_t>(runs.own.size(), 1));
  for (const auto& [peer, seconds] : runs.waited_for)
    peers.emplace_back(seconds / operations / iterations, peer);
  std::ranges::stable_sort(peers, std::ranges::greater{}, &std::pair<double, int>::first);
  constexpr std::size_t most = 100;  // a file must not hold every pair of a large world
  if (peers.size() > most) peers.resize(most);
  return {mean(runs.held),
          mean(runs.seconds) / operations,
          runs.own.size(),
          own.value / operations,
          std::isfinite(own.error) ? json(own.error / operations) : json(),
          mean(runs.waited) / operations,
          peers,
          result.group_seconds.empty() ? 0 : percentile(result.group_seconds, 0.5) / operations};
}

RankRow row_from(const json& row) {
  RankRow read{.late = row[0],
               .seconds = row[1],
               .counted = row[2],
               .own = {.seconds = row[3],
                       .error = row[4].is_null() ? std::numeric_limits<double>::infinity()
                                                 : row[4].get<double>()},
               .waited = row[5],
               .waited_for = {},
               .group_seconds = row[7]};
  for (const json& peer : row[6]) read.waited_for.push_back({.peer = peer[1], .seconds = peer[0]});
  return read;
}

template <typename Value>
ordered_json in_us(const BenchRun& run, std::size_t row, Value value) {
  ordered_json list = ordered_json::array();
  for (const BenchRank& rank : run.ranks) list.push_back(value(rank.rows[row]) * 1e6);
  return list;
}

// [[rank, peer, us], ...]
ordered_json waits_of(const BenchRun& run, std::size_t row) {
  ordered_json list = ordered_json::array();
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
    for (const WaitTimes::Waited& waited : run.ranks[rank].rows[row].waited_for)
      list.push_back({rank, waited.peer, waited.seconds * 1e6});
  return list;
}

}  // namespace

std::vector<BenchRank> gather_ranks(Communicator& world, const std::vector<BenchResult>& results,
                                    const BenchOptions& options) {
  world.set_label(report_label);
  std::vector<OwnRuns> own;
  for (const BenchResult& result : results) own.push_back(result.own);
  compare_arrivals(world, own);
  const RankSite site = site_of(world.records().ledger);
  json mine = {{"host", site.host}, {"device", site.device}, {"rows", json::array()}};
  for (std::size_t row = 0; row < results.size(); ++row) {
    BenchResult result = results[row];
    result.own = own[row];
    mine["rows"].push_back(row_of(result, options.operations_per_iteration));
  }
  std::vector<BenchRank> ranks;
  for (const std::string& text : gather_text(world, json_line(mine))) {
    const json read = parse_json(text, "the times of a rank", most_result_values);
    BenchRank& rank = ranks.emplace_back();
    rank.site = {.host = read["host"], .device = read["device"]};
    for (const json& row : read["rows"]) rank.rows.push_back(row_from(row));
  }
  world.set_label("");
  return ranks;
}

SlowRanks slow_ranks(const BenchRun& run, const LaunchOptions& world) {
  std::vector<RankTime> times;
  double samples = 0;
  for (const BenchRank& rank : run.ranks) {
    RankTime& sum = times.emplace_back();
    sum.rank = static_cast<int>(times.size()) - 1;
    sum.site = rank.site;
    samples = 0;
    double squares = 0;
    for (std::size_t row = 0; row < rank.rows.size(); ++row) {
      const RankRow& each = rank.rows[row];
      if (!run.results[row].equal_work || each.counted == 0) continue;
      const double counted = each.counted;
      samples += counted;
      sum.own.seconds += counted * each.own.seconds;
      squares += std::pow(counted * each.own.error, 2);
      sum.waited += counted * each.waited;
    }
    sum.own.error = std::sqrt(squares);
  }
  if (samples == 0) return {};
  return slow_ranks(std::move(times), world.clock, 1);  // sums, not means
}

std::string slowest_group(const BenchRun& run) {
  if (run.groups.empty() || run.ranks.empty()) return "";
  std::vector<double> sums;
  for (const std::vector<int>& members : run.groups) {
    double& sum = sums.emplace_back();
    for (const RankRow& row : run.ranks[static_cast<std::size_t>(members.front())].rows)
      sum += row.group_seconds;
  }
  const auto [fastest, slowest] = std::ranges::minmax_element(sums);
  if (*fastest <= 0 || slowest == fastest) return "";
  const auto name = [&](auto sum) {
    return group_name(run.groups, static_cast<std::size_t>(sum - sums.begin()));
  };
  return fmt::format("slowest group: {}, whose operations take {:.3g} times as long as those of {}",
                     name(slowest), *slowest / *fastest, name(fastest));
}

void add_ranks(ordered_json& file, const BenchRun& run, const LaunchOptions& world,
               const std::vector<std::string>& names) {
  if (run.ranks.empty()) return;
  file["ranks"] = ordered_json::array();
  for (const BenchRank& rank : run.ranks)
    file["ranks"].push_back(
        {{"rank", file["ranks"].size()}, {"host", rank.site.host}, {"device", rank.site.device}});
  if (!run.groups.empty()) file["groups"] = run.groups;
  file["rank_times"] = ordered_json::array();
  for (std::size_t row = 0; row < run.results.size(); ++row) {
    if (run.results[row].own.seconds.empty()) continue;  // ran in other processes
    ordered_json times = {
        {"name", names[row]},
        {"late_us", in_us(run, row, [](const RankRow& each) { return each.late; })},
        {"duration_us", in_us(run, row, [](const RankRow& each) { return each.seconds; })}};
    if (run.ranks.front().rows[row].counted > 0) {
      times["own_us"] = in_us(run, row, [](const RankRow& each) { return each.own.seconds; });
      times["waited_us"] = in_us(run, row, [](const RankRow& each) { return each.waited; });
      times["waited_for_us"] = waits_of(run, row);
      times["equal_work"] = run.results[row].equal_work;
    }
    for (const std::vector<int>& members : run.groups)
      times["group_us"].push_back(
          run.ranks[static_cast<std::size_t>(members.front())].rows[row].group_seconds * 1e6);
    file["rank_times"].push_back(std::move(times));
  }
  if (const SlowRanks slow = slow_ranks(run, world); slow.compared > 0)
    file["slow_ranks"] = json_of(slow);
}

}  // namespace lockstep
