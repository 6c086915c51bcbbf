#include "bench/pairs/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Where each rank runs, on rank 0. Threads that the links divide into nodes are on hosts of their
// own.
std::vector<RankSite> sites_of(Communicator& comm) {
  const RankSite own = site_of(comm.records().ledger);
  std::vector<RankSite> sites;
  for (const std::string& text : gather_text(comm, json_line(json{own.host, own.device}))) {
    const json site = parse_json(text, "the site of a rank");
    sites.push_back({.host = site[0], .device = site[1]});
  }
  const int per_node = comm.ranks_per_node();
  const bool one_name = std::ranges::all_of(
      sites, [&](const RankSite& site) { return site.host == sites.front().host; });
  if (one_name && per_node > 0 && per_node < comm.size())
    for (std::size_t rank = 0; rank < sites.size(); ++rank)
      sites[rank].host += fmt::format(" node {}", static_cast<int>(rank) / per_node);
  return sites;
}

// The number of each rank's host, on every rank.
std::vector<int> hosts_of(Communicator& comm, const std::vector<RankSite>& sites) {
  std::vector<int> hosts(static_cast<std::size_t>(comm.size()));
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < sites.size(); ++rank) {
    const auto known = std::ranges::find(names, sites[rank].host);
    hosts[rank] = static_cast<int>(known - names.begin());
    if (known == names.end()) names.push_back(sites[rank].host);
  }
  broadcast(comm, host_slice(std::span(hosts)), 0);
  return hosts;
}

void check_rounds(const std::vector<LinkGroup>& groups, const std::vector<Round>& rounds,
                  const PairsOptions& options) {
  const int all = most_rounds(groups);
  require(
      options.rounds <= all, [&] { return fmt::format("--rounds {}", options.rounds); },
      fmt::format("all pairs take {}: use at most that, or omit it", all));
  std::size_t links = 0;
  for (const Round& round : rounds) links += round.size();
  require(
      links <= most_links,
      [&] { return fmt::format("{} links in {} rounds", links, rounds.size()); },
      fmt::format("at most {} are measured: use a smaller --rounds", most_links));
}

// This rank's part of a round.
struct OwnPart {
  int peer = -1;  // below 0: it rests
  bool leads = false;
};

OwnPart part_of(const Round& round, int rank) {
  for (const GroupPair& pair : round) {
    if (pair.ranks.first == rank) return {.peer = pair.ranks.second, .leads = true};
    if (pair.ranks.second == rank) return {.peer = pair.ranks.first, .leads = false};
  }
  return {};
}

double run_test(Communicator& comm, const LinkBuffers& buffers, LinkTest test,
                const OwnPart& part) {
  switch (test) {
    case LinkTest::latency:
      return ping_pong_seconds(comm, buffers, part.peer, part.leads);
    case LinkTest::forward:
      return one_way_seconds(comm, buffers, part.peer, part.leads);
    case LinkTest::backward:
      return one_way_seconds(comm, buffers, part.peer, !part.leads);
    case LinkTest::both_ways:
      return both_ways_seconds(comm, buffers, part.peer);
  }
  return 0;
}

using Samples = std::array<std::vector<double>, link_tests>;

// This rank's times, by round. Every second iteration goes through the rounds backwards, so that
// disturbances of the machine affect all links alike.
std::vector<Samples> own_samples(Communicator& comm, const LinkBuffers& buffers,
                                 const std::vector<Round>& rounds, const PairsOptions& options) {
  std::vector<Samples> samples(rounds.size());
  std::vector<OwnPart> parts;
  for (const Round& round : rounds) parts.push_back(part_of(round, comm.rank()));
  for (int i = 0; i < options.warmup + options.iterations; ++i)
    for (std::size_t k = 0; k < rounds.size(); ++k) {
      const std::size_t round = i % 2 == 0 ? k : rounds.size() - 1 - k;
      for (std::size_t test = 0; test < link_tests; ++test) {
        const OwnPart& part = parts[round];
        barrier(comm);
        if (part.peer >= 0) meet(comm, buffers, part.peer, part.leads);
        comm.transport().align();
        if (part.peer >= 0) {
          const double seconds = run_test(comm, buffers, static_cast<LinkTest>(test), part);
          if (i >= options.warmup) samples[round][test].push_back(seconds);
        }
        // In virtual time, messages of ranks that rest must not take time on measured links.
        comm.transport().align();
      }
    }
  return samples;
}

// Of a link: the leader's times, and of both ways the mean of both ranks', since one of them began
// a little later.
MeasuredLink link_of(const GroupPair& pair, const Samples& first, const Samples& second) {
  MeasuredLink link{.ranks = pair.ranks, .group = pair.group, .seconds = first};
  const auto backward = static_cast<std::size_t>(LinkTest::backward);
  const auto both = static_cast<std::size_t>(LinkTest::both_ways);
  link.seconds[backward] = second[backward];
  for (std::size_t i = 0; i < link.seconds[both].size(); ++i)
    link.seconds[both][i] = (first[both][i] + second[both][i]) / 2;
  return link;
}

std::vector<MeasuredLink> gather_links(Communicator& comm, const std::vector<Round>& rounds,
                                       const std::vector<Samples>& own) {
  std::vector<std::vector<Samples>> by_rank;
  for (const std::string& text : gather_text(comm, json_line(json(own))))
    by_rank.push_back(
        parse_json(text, "the times of a rank", most_result_values).get<std::vector<Samples>>());
  std::vector<MeasuredLink> links;
  for (std::size_t round = 0; !by_rank.empty() && round < rounds.size(); ++round)
    for (const GroupPair& pair : rounds[round])
      links.push_back(link_of(pair, by_rank[static_cast<std::size_t>(pair.ranks.first)][round],
                              by_rank[static_cast<std::size_t>(pair.ranks.second)][round]));
  return links;
}

// The pairs that were measured alone become one test, whose time is that of the slowest.
void join_alone(std::vector<FabricTest>& tests) {
  const auto is_alone = [](const FabricTest& test) { return test.name == "bisection_alone"; };
  const auto first = std::ranges::find_if(tests, is_alone);
  for (const FabricTest& test : tests)
    if (is_alone(test))
      for (std::size_t i = 0; i < test.seconds.size(); ++i)
        first->seconds[i] = std::max(first->seconds[i], test.seconds[i]);
  tests.erase(std::remove_if(first + 1, tests.end(), is_alone), tests.end());
}

void measure_tests(Communicator& comm, const PairsOptions& options,
                   std::vector<FabricTest>& tests) {
  std::vector<Timed> timed;
  for (const FabricTest& test : tests) timed.push_back(test.timed);
  const auto seconds = measure(comm, options.warmup, options.iterations, timed);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    tests[i].seconds = seconds[i];
    tests[i].timed = {};  // refers to this world
  }
}

// Fills in the tests that load the whole fabric.
void run_tests(Communicator& comm, const LinkBuffers& buffers, const PairsOptions& options,
               Clock clock, PairsRun& run) {
  run.tests = fabric_tests(comm, buffers);
  measure_tests(comm, options, run.tests);
  join_alone(run.tests);
  run.computing = percentile(run.tests.front().seconds, 0.5);
  std::vector<FabricTest> overlap = {overlap_test(comm, buffers, clock, run.computing)};
  measure_tests(comm, options, overlap);
  run.tests.push_back(std::move(overlap.front()));
}

void within(std::int64_t value, std::int64_t least, std::int64_t most, const char* flag) {
  require(value >= least && value <= most, fmt::format("{} {}", flag, value),
          fmt::format("use a number from {} to {}", least, most));
}

}  // namespace

void check(const PairsOptions& options, int ranks) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 36;
  require(ranks >= 2, fmt::format("pairs among {} rank{}", ranks, ranks == 1 ? "" : "s"),
          "a pair needs two: use --ranks, or start more processes");
  within(options.small_bytes, 1, most_bytes, "-b");
  within(options.large_bytes, options.small_bytes, most_bytes, "-e");
  within(options.window, 1, 1024, "--window");
  within(options.iterations, 1, 1'000'000, "-n");
  within(options.warmup, 0, 1'000'000, "-w");
  within(options.rounds, 0, ranks, "--rounds");
  require(options.effect > 0 && std::isfinite(options.effect),
          fmt::format("--effect {}", options.effect), "use a number above 0: 0.25 is 25 %");
}

PairsRun measure_pairs(RankContext& context, const PairsOptions& given,
                       const LaunchOptions& world) {
  Communicator& comm = context.world;
  PairsOptions options = given;
  // Each rank may have a GPU of its own.
  if (Device* const own = context.ledger.device()) options.device = own;
  PairsRun run{.transport = std::string(comm.transport().name()), .sites = sites_of(comm)};
  if (VendorCollectives* const vendor = comm.transport().vendor()) run.library = vendor->library();
  run.groups = link_groups(hosts_of(comm, run.sites));
  const std::vector<Round> rounds = rounds_of(run.groups, options.rounds, options.first_round);
  check_rounds(run.groups, rounds, options);
  run.rounds = static_cast<int>(rounds.size());
  const LinkBuffers buffers(comm, *options.device, options.small_bytes, options.large_bytes,
                            options.window);
  run.links = gather_links(comm, rounds, own_samples(comm, buffers, rounds, options));
  if (options.has_tests) run_tests(comm, buffers, options, world.clock, run);
  if (comm.rank() > 0) return run;
  find_classes(run);
  run.slow = find_slow(run, options, world.clock);
  return run;
}

}  // namespace lockstep
