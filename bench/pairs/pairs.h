// Measures the links between all pairs of ranks, finds slow ones and whether a host or a cable is to
// blame, and loads the whole fabric: bisection, incast, message rate, overlap with computing.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bench/pairs/exchange.h"
#include "bench/pairs/rounds.h"
#include "bench/pairs/slow_links.h"
#include "bench/results/timed_rows.h"
#include "collectives/base/rank_site.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

struct PairsOptions {
  Count small_bytes = 8, large_bytes = Count{1} << 20;
  int window = 4;  // large messages in flight in one direction
  int iterations = 10, warmup = 1;
  int rounds = 0;         // of each group; 0: all pairs
  int first_round = 0;    // of those, if not all are measured
  bool has_tests = true;  // that load the whole fabric
  double effect = 0.25;   // a link is slow if it takes that much longer than those of its class
  Device* device = &host_device();
};

// With fewer samples of each link in real time, none is called slow.
inline constexpr std::size_t fewest_samples = 8;

// A file has 4 entries for each.
inline constexpr std::size_t most_links = 5000;

// Throws Error (bad_input) naming the flag and its range.
void check(const PairsOptions& options, int ranks);

// The ways in which a link is measured.
enum class LinkTest { latency, forward, backward, both_ways };
inline constexpr std::size_t link_tests = 4;

struct MeasuredLink {
  RankPair ranks;
  int group = 0;
  int link_class = 0, classes = 1;  // by latency, of its group's; 0 is the nearest
  // By test, in seconds by iteration. Forward is from the first rank to the second one.
  std::array<std::vector<double>, link_tests> seconds;

  const std::vector<double>& of(LinkTest test) const {
    return seconds[static_cast<std::size_t>(test)];
  }
};

// A unit or a cable that is slow, in one or more measurements.
struct SlowFinding {
  SlowLink slow;  // between ranks; the ratio is the largest
  bool is_in_host = false;
  std::vector<std::pair<std::string, double>> ratios;  // by measurement: "latency", 3
};

struct PairsRun {
  std::string transport, library;
  std::vector<RankSite> sites;  // by rank
  std::vector<LinkGroup> groups;
  int rounds = 0;
  std::vector<MeasuredLink> links;
  std::vector<FabricTest> tests;
  double computing = 0;  // seconds, of the test `overlap`
  std::vector<SlowFinding> slow;
};

// Every rank calls it. The run is complete on rank 0 only. Throws Error (bad_input) on all ranks if
// there are too many links, or fewer rounds than asked for.
PairsRun measure_pairs(RankContext& context, const PairsOptions& options,
                       const LaunchOptions& world);

// The time by which a link is judged: the mean of the faster half of its samples, as disturbances can
// only slow a sample.
MeasuredTime judged_time(const std::vector<double>& samples);
// Sets the classes of the links. Groups in which latency shows as many classes are compared with
// each other.
void find_classes(PairsRun& run);
// Returns what is slow, after find_classes().
std::vector<SlowFinding> find_slow(const PairsRun& run, const PairsOptions& options, Clock clock);

// "host c (rank 2)"
std::string described(const PairsRun& run, int rank);
// "host c (rank 2), with 7 of 7 others: its link; one way 10.0 times, ..."
std::string text_of(const PairsRun& run, const SlowFinding& finding);

// The table for a terminal.
std::string table_of(const PairsRun& run, const PairsOptions& options, const LaunchOptions& world);
// The measured times: pointers into `run`.
std::vector<TimedRow> rows_of(const PairsRun& run, const PairsOptions& options);
// Adds "ranks", "links" and "slow_links".
void add_links(nlohmann::ordered_json& file, const PairsRun& run, const PairsOptions& options);
// The results as Google Benchmark's JSON, with the samples of each entry.
std::string pairs_json(const PairsRun& run, const PairsOptions& options,
                       const LaunchOptions& world);

}  // namespace lockstep
