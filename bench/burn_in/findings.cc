#include "bench/burn_in/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bench/burn_in/missing_parts.h"
#include "bench/results/outliers.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// A code's verdict, and what to do.
struct Code {
  int number;
  Health verdict;
  const char* next;
};

constexpr Code missing_parts{101, Health::fail, "lockstep doctor --json   # there"};
constexpr Code slow_products{201, Health::degraded,
                             "lockstep bench model --threads 1   # there, and on another host"};
constexpr Code slow_memory{202, Health::degraded,
                           "lockstep burn-in --passes 20   # there alone; look for other programs "
                           "and missing memory modules"};
constexpr Code slow_host{301, Health::degraded, "lockstep bench pairs -n 30   # on the same hosts"};
constexpr Code slow_cable{302, Health::degraded,
                          "lockstep bench pairs -n 30   # on these two and two more"};
constexpr Code slow_rank{303, Health::degraded,
                         "lockstep bench pairs -n 30   # on this host alone"};
constexpr Code wrong_sums{401, Health::fail,
                          "lockstep bench all_reduce --algorithm all -n 100   # without this host"};
constexpr Code odd_curve{402, Health::degraded,
                         "lockstep bench all_reduce --algorithm all --tune tuning.json"};
constexpr Code changing_bits{501, Health::fail,
                             "lockstep burn-in --passes 100   # there, out of service"};
constexpr Code different_bits{502, Health::fail, changing_bits.next};
constexpr Code disputed_bits{503, Health::fail,
                             "lockstep burn-in --passes 20   # with a third host of the same "
                             "processor, to see which one is wrong"};
constexpr Code became_slower{
    601, Health::degraded,
    "lockstep burn-in --minutes 10   # there, after a pause; look for heat, "
    "throttling and other programs"};
constexpr Code below_baseline{701, Health::degraded, "lockstep compare "};
constexpr Code lost_rank{801, Health::fail, "lockstep bench pairs -n 30   # without this host"};

Finding finding(const Code& code, std::vector<std::string> hosts, std::string text) {
  return {.code = code.number,
          .verdict = code.verdict,
          .hosts = std::move(hosts),
          .text = std::move(text),
          .next = code.next};
}

std::string described(const BurnInRun& run, std::size_t rank) {
  const RankSite& site = run.machines[rank].site;
  return fmt::format("rank {}{}", rank, site.device == "host" ? "" : " on " + site.device);
}

// Whether at most one in eight samples is shorter: then a rank is slow again and again, even if its samples
// vary.
bool are_longer(const std::vector<double>& samples, double seconds) {
  const auto longer = std::ranges::count_if(samples, [&](double each) { return each > seconds; });
  const auto others = std::ssize(samples) - longer;
  return 8 * others <= std::ssize(samples);
}

// Ranks that take longer than others with the same processor and kind of device.
void find_slow_ranks(const BurnInRun& run, const std::vector<Series>& times, double effect,
                     const Code& code, const char* what, std::vector<Finding>& found) {
  std::map<std::pair<std::string, bool>, std::vector<std::size_t>> kinds;
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    if (times[rank].values().size() >= fewest_samples)
      kinds[{run.machines[rank].processor, run.machines[rank].site.device == "host"}].push_back(
          rank);
  for (const auto& [kind, ranks] : kinds) {
    std::vector<MeasuredTime> own;
    std::vector<double> seconds;
    for (const std::size_t rank : ranks) {
      own.push_back(judged_time(times[rank].values()));
      seconds.push_back(own.back().seconds);
    }
    // The samples of a rank that shares its core vary so much that the error of their mean says little.
    const double long_seconds = (1 + effect) * lower_median(seconds);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (are_longer(times[ranks[i]].values(), long_seconds)) own[i].error = 0;
    for (const Outlier& outlier : find_outliers(own, {.score = 5, .share = effect})) {
      const std::size_t rank = ranks[outlier.index];
      found.push_back(
          finding(code, {run.machines[rank].site.host},
                  fmt::format("{} {} in {:.2f} times the time of the other ranks",
                              described(run, rank), what, outlier.seconds / outlier.median)));
    }
  }
}

// A cable at a host that is slow itself, as `found` says, is not to blame.
void find_slow_links(const BurnInRun& run, std::vector<Finding>& found) {
  std::set<std::string> slow;
  for (const Finding& each : found)
    if (each.code == slow_products.number || each.code == slow_memory.number)
      slow.insert(each.hosts.begin(), each.hosts.end());
  for (const SlowFinding& each : run.links.slow) {
    const auto host = [&](int rank) {
      return run.links.sites[static_cast<std::size_t>(rank)].host;
    };
    const bool is_unit = each.slow.from == each.slow.to;
    std::vector<std::string> hosts = {host(each.slow.from)};
    if (host(each.slow.to) != hosts.front()) hosts.push_back(host(each.slow.to));
    const auto is_slow = [&](const std::string& name) { return slow.contains(name); };
    if (hosts.size() > 1 && std::ranges::any_of(hosts, is_slow)) continue;
    found.push_back(finding(each.is_in_host ? slow_rank
                            : is_unit       ? slow_host
                                            : slow_cable,
                            hosts, text_of(run.links, each)));
  }
}

void find_odd_sizes(const BurnInRun& run, const BurnInOptions& options,
                    std::vector<Finding>& found) {
  std::vector<double> typical;
  for (const Series& times : run.all_reduces) {
    if (times.values().size() < fewest_samples) return;
    typical.push_back(percentile(times.values(), 0.5));
  }
  for (std::size_t size = 0; size + 1 < typical.size(); ++size)
    if (typical[size] > (1 + options.effect()) * typical[size + 1])
      found.push_back(finding(
          odd_curve, {},
          fmt::format("an all-reduce of {} bytes takes {:.2f} times the time of one of {} bytes",
                      options.all_reduce_bytes[size], typical[size] / typical[size + 1],
                      options.all_reduce_bytes[size + 1])));
}

void find_wrong_sums(const BurnInRun& run, std::vector<Finding>& found) {
  for (std::size_t rank = 0; rank < run.wrong_sums.size(); ++rank)
    if (const WrongCount& wrong = run.wrong_sums[rank]; wrong.times > 0)
      found.push_back(
          finding(wrong_sums, {run.machines[rank].site.host},
                  fmt::format("rank {} got {} wrong sum{} from all-reduce, first in "
                              "pass {}; the fault may be on any rank",
                              rank, wrong.times, wrong.times == 1 ? "" : "s", wrong.first_pass)));
}

void find_wrong_bits(const BurnInRun& run, std::vector<Finding>& found) {
  struct Kind {
    WrongBits bits;
    Code code;
    const char* text;
  };
  const Kind kinds[] = {
      {WrongBits::changing, changing_bits, "computed {} step{} twice with different gradients"},
      {WrongBits::different, different_bits,
       "computed {} step{} with gradients that are not those of the other ranks"},
      {WrongBits::disputed, disputed_bits,
       "computed {} step{} with other gradients than another rank; no majority says which is "
       "right"}};
  for (const Kind& kind : kinds) {
    const auto counts = run.wrong_bits.find(kind.bits);
    if (counts == run.wrong_bits.end()) continue;
    for (std::size_t rank = 0; rank < counts->second.size(); ++rank)
      if (const WrongCount& wrong = counts->second[rank]; wrong.times > 0)
        found.push_back(finding(kind.code, {run.machines[rank].site.host},
                                fmt::format("{} {}, first in pass {}", described(run, rank),
                                            fmt::format(fmt::runtime(kind.text), wrong.times,
                                                        wrong.times == 1 ? "" : "s"),
                                            wrong.first_pass)));
  }
}

void find_slowdowns(const BurnInRun& run, const BurnInOptions& options,
                    std::vector<Finding>& found) {
  const auto look = [&](const Series& times, std::vector<std::string> hosts,
                        const std::string& what) {
    const Slowdown slowdown = slowdown_of(times, options.effect());
    if (slowdown.ratio <= 1) return;
    const auto all = static_cast<double>(times.number_of(times.values().size()));
    found.push_back(finding(
        became_slower, std::move(hosts),
        fmt::format("{} in {:.2f} times the time it took at first, since about {:.0f} % of the run",
                    what, slowdown.ratio, 100 * static_cast<double>(slowdown.at) / all)));
  };
  for (std::size_t rank = 0; rank < run.products.size(); ++rank) {
    const std::vector<std::string> host = {run.machines[rank].site.host};
    look(run.products[rank], host, described(run, rank) + " multiplies matrices");
    look(run.copies[rank], host, described(run, rank) + " copies memory");
  }
  for (std::size_t size = 0; size < run.all_reduces.size(); ++size)
    look(run.all_reduces[size], {},
         fmt::format("an all-reduce of {} bytes ends", options.all_reduce_bytes[size]));
}

}  // namespace

std::string_view name_of(Health verdict) {
  return verdict == Health::pass ? "pass" : verdict == Health::degraded ? "degraded" : "fail";
}

std::vector<Finding> findings_of(const BurnInRun& run, const BurnInOptions& options) {
  std::vector<Finding> found;
  for (auto& [host, text] : parts_missing(run, options.expected))
    found.push_back(finding(missing_parts, {host}, std::move(text)));
  find_slow_ranks(run, run.products, options.effect(), slow_products, "multiplies matrices", found);
  find_slow_ranks(run, run.copies, options.effect(), slow_memory, "copies memory", found);
  find_slow_links(run, found);
  find_wrong_sums(run, found);
  find_odd_sizes(run, options, found);
  find_wrong_bits(run, found);
  find_slowdowns(run, options, found);
  return found;
}

std::vector<Finding> slower_than(const Measurements& baseline, const Measurements& now,
                                 const BurnInRun& run, const BurnInOptions& options,
                                 double tolerance) {
  const std::string what = fmt::format("--baseline {}", printable(baseline.path));
  for (const Difference& each : differences(baseline, now))
    require(each.weight != Weight::hardware, what + ": " + each.text,
            "compare with a burn-in of the same hardware");
  const auto of = [&](const char* key) {
    const auto found = baseline.environment.find(key);
    return found == baseline.environment.end() ? "unknown" : printable(found->second);
  };
  const std::string origin =
      fmt::format("{}, measured {} on {}, commit {}", printable(baseline.path), of("time"),
                  of("host"), of("commit"));
  std::vector<Finding> found;
  std::size_t compared = 0;
  for (const auto& [row, host] : rows_of(run, options)) {
    const auto before = baseline.rows.find(row.name);
    if (before == baseline.rows.end() || before->second.iterations.empty()) continue;
    ++compared;
    const double ratio =
        1e6 * judged_time(*row.seconds).seconds / judged_time(before->second.iterations).seconds;
    if (ratio > 1 + tolerance)
      found.push_back(
          finding(below_baseline, host.empty() ? std::vector<std::string>{} : std::vector{host},
                  fmt::format("{} takes {:.2f} times the time in {}", row.name, ratio, origin)));
  }
  for (Finding& each : found) each.next += printable(baseline.path) + " " + printable(now.path);
  require(compared > 0, what, "it has none of this run's rows: use the --json file of a burn-in");
  return found;
}

Finding ended_by(const BurnInRun& run, const Error& error) {
  std::vector<std::string> hosts;
  const int rank =
      error.context().failed_rank >= 0 ? error.context().failed_rank : error.context().peer;
  if (rank >= 0 && rank < std::ssize(run.machines))
    hosts = {run.machines[static_cast<std::size_t>(rank)].site.host};
  return finding(lost_rank, std::move(hosts),
                 fmt::format("pass {} did not end: {}", run.passes, error.what()));
}

std::vector<HostVerdict> verdicts_of(const BurnInRun& run, const std::vector<Finding>& findings) {
  std::vector<HostVerdict> hosts;
  std::set<std::string> known;
  for (const RankMachine& machine : run.machines) {
    const std::string& host = machine.site.host;
    if (!known.insert(host).second) continue;
    HostVerdict& own = hosts.emplace_back();
    own.host = host;
    for (const Finding& each : findings)
      if (std::ranges::count(each.hosts, host) > 0)
        own.verdict = std::max(own.verdict, each.verdict);
  }
  return hosts;
}

Health verdict_of(const std::vector<Finding>& findings) {
  Health worst = Health::pass;
  for (const Finding& each : findings) worst = std::max(worst, each.verdict);
  return worst;
}

}  // namespace lockstep
