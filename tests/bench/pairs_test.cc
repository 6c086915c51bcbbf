// The benchmark of links: rounds cover all pairs and share no port, slow hosts and cables are named on
// given times, noise names nobody, and virtual times equal the closed forms.
#include "bench/pairs/pairs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <vector>

#include "bench/pairs/classes.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

std::vector<int> hosts_with(const std::vector<int>& ranks_of_host) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < ranks_of_host.size(); ++host)
    hosts.insert(hosts.end(), static_cast<std::size_t>(ranks_of_host[host]),
                 static_cast<int>(host));
  return hosts;
}

// The pairs that are to be measured, written down independently: of one host, or with the same place.
std::set<RankPair> wanted_pairs(const std::vector<int>& hosts) {
  std::vector<int> places;
  std::map<int, int> seen;
  for (const int host : hosts) places.push_back(seen[host]++);
  std::set<RankPair> pairs;
  for (int a = 0; a < std::ssize(hosts); ++a)
    for (int b = a + 1; b < std::ssize(hosts); ++b) {
      const auto i = static_cast<std::size_t>(a), k = static_cast<std::size_t>(b);
      if (hosts[i] == hosts[k] || places[i] == places[k]) pairs.insert({.first = a, .second = b});
    }
  return pairs;
}

// Each rank has at most one pair in a round, and each host at most one rank with a pair to another.
void expect_no_shared_port(const Round& round, const std::vector<int>& hosts) {
  std::set<int> ranks, between;
  const auto host = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  const bool crosses = host(round.front().ranks.first) != host(round.front().ranks.second);
  for (const GroupPair& pair : round) {
    EXPECT_EQ(host(pair.ranks.first) != host(pair.ranks.second), crosses);
    for (const int rank : {pair.ranks.first, pair.ranks.second}) {
      EXPECT_TRUE(ranks.insert(rank).second);
      EXPECT_TRUE(!crosses || between.insert(host(rank)).second);
    }
  }
}

std::vector<std::vector<int>> layouts() {
  std::vector<std::vector<int>> found = {{2, 2},    {4, 4, 4}, {8, 8, 8, 8},
                                         {1, 2, 3}, {5, 1},    {2, 7}};
  for (int n = 2; n <= 17; ++n) {
    found.push_back({n});
    found.push_back(std::vector<int>(static_cast<std::size_t>(n), 1));
  }
  return found;
}

TEST(PairRounds, CoverAllPairsOnceAndShareNoPort) {
  for (const std::vector<int>& layout : layouts()) {
    const std::vector<int> hosts = hosts_with(layout);
    std::set<RankPair> covered;
    const std::vector<LinkGroup> groups = link_groups(hosts);
    for (const Round& round : rounds_of(groups, 0)) {
      ASSERT_FALSE(round.empty());
      expect_no_shared_port(round, hosts);
      for (const GroupPair& pair : round) {
        EXPECT_LT(pair.ranks.first, pair.ranks.second);
        EXPECT_TRUE(covered.insert(pair.ranks).second);
        const std::vector<int>& ranks = groups[static_cast<std::size_t>(pair.group)].ranks;
        EXPECT_EQ(std::ranges::count(ranks, pair.ranks.first), 1);
        EXPECT_EQ(std::ranges::count(ranks, pair.ranks.second), 1);
      }
    }
    EXPECT_EQ(covered, wanted_pairs(hosts));
  }
}

TEST(PairRounds, AreAsFewAsPossible) {
  for (int n = 2; n <= 17; ++n) {
    const int fewest = n % 2 == 0 ? n - 1 : n;
    for (const std::vector<int>& layout :
         {std::vector{n}, std::vector(static_cast<std::size_t>(n), 1)}) {
      const std::vector<LinkGroup> groups = link_groups(hosts_with(layout));
      EXPECT_EQ(std::ssize(rounds_of(groups, 0)), fewest);
      EXPECT_EQ(most_rounds(groups), fewest);
    }
  }
}

TEST(PairRounds, AQuickCoverMeetsAsManyOthersEverywhere) {
  for (int n = 4; n <= 17; ++n)
    for (int rounds = 1; rounds <= 3; ++rounds) {
      std::map<int, int> met;
      std::set<RankPair> seen;
      const auto hosts = hosts_with(std::vector<int>(static_cast<std::size_t>(n), 1));
      const std::vector<Round> chosen = rounds_of(link_groups(hosts), rounds);
      EXPECT_EQ(std::ssize(chosen), rounds);
      for (const Round& round : chosen) {
        EXPECT_EQ(std::ssize(round), n / 2);
        for (const GroupPair& pair : round) {
          EXPECT_TRUE(seen.insert(pair.ranks).second);
          ++met[pair.ranks.first], ++met[pair.ranks.second];
        }
      }
      for (int rank = 0; rank < n; ++rank) EXPECT_GE(met[rank], rounds - n % 2);
      for (int first = 1; first < most_rounds(link_groups(hosts)); ++first)
        for (const Round& round : rounds_of(link_groups(hosts), rounds, first))
          for (const GroupPair& pair : round) seen.insert(pair.ranks);
      EXPECT_EQ(std::ssize(seen), n * (n - 1) / 2);
    }
}

using Latency = std::function<double(int, int)>;

std::vector<UnitLatency> latencies_of(int units, const Latency& latency) {
  std::vector<UnitLatency> links;
  for (int a = 0; a < units; ++a)
    for (int b = a + 1; b < units; ++b)
      links.push_back(
          {.first = a, .second = b, .time = {.seconds = latency(a, b), .error = 0.001}});
  return links;
}

// The class of each pair must be the number of the given block sizes that do not hold both.
void expect_classes(int units, const std::vector<int>& block_sizes, const Latency& latency) {
  const std::vector<UnitLatency> links = latencies_of(units, latency);
  const std::vector<int> classes = classes_of(units, links);
  for (std::size_t i = 0; i < links.size(); ++i) {
    int wanted = 0;
    for (const int size : block_sizes) wanted += links[i].first / size != links[i].second / size;
    EXPECT_EQ(classes[i], wanted) << links[i].first << " and " << links[i].second;
  }
}

TEST(LinkClasses, AreTheLevelsOfTheFabric) {
  std::mt19937 random(3);
  std::normal_distribution noise(1.0, 0.02);
  for (int trial = 0; trial < 20; ++trial) {
    const auto two = [&](int size, double far) {
      return
          [&, size, far](int a, int b) { return noise(random) * (a / size == b / size ? 1 : far); };
    };
    expect_classes(8, {4}, two(4, 2));
    expect_classes(8, {2}, two(2, 1.6));
    expect_classes(12, {6}, two(6, 30));
    expect_classes(16, {4, 8}, [&](int a, int b) {
      return noise(random) * (a / 4 == b / 4 ? 1 : a / 8 == b / 8 ? 2 : 5);
    });
  }
}

TEST(LinkClasses, SlowLinksAndNoiseMakeNone) {
  std::mt19937 random(4);
  std::normal_distribution noise(1.0, 0.02);
  const auto is = [](int a, int b, int x, int y) { return std::minmax(a, b) == std::minmax(x, y); };
  for (int trial = 0; trial < 100; ++trial) {
    const auto even = [&](int, int) { return noise(random); };
    expect_classes(8, {}, even);
    const int slow = static_cast<int>(random() % 8), other = (slow + 3) % 8;
    expect_classes(8, {},
                   [&](int a, int b) { return noise(random) * (a == slow || b == slow ? 10 : 1); });
    expect_classes(8, {}, [&](int a, int b) {
      return noise(random) * (a == slow || b == slow || a == other || b == other ? 10 : 1);
    });
    expect_classes(8, {},
                   [&](int a, int b) { return noise(random) * (is(a, b, slow, other) ? 10 : 1); });
    // A slow link inside a block stays in its class.
    expect_classes(8, {4}, [&](int a, int b) {
      return noise(random) * (is(a, b, 1, 2) ? 50 : a / 4 == b / 4 ? 1 : 2);
    });
  }
}

TEST(LinkClasses, NoisyLatenciesHaveNoGap) {
  std::vector<UnitLatency> links =
      latencies_of(8, [](int a, int b) { return a / 4 == b / 4 ? 1 : 2; });
  for (UnitLatency& link : links) link.time.error = 0.3;
  EXPECT_EQ(classes_of(8, links), std::vector(links.size(), 0));
}

// A fabric of hosts with `per_host` ranks each, whose links take `factor` times the time of their class,
// from one rank to another, with noise, of which a few samples are far too long.
struct Fabric {
  int hosts = 8, per_host = 1, hosts_per_switch = 0, rounds = 0;
  double noise = 0.03, long_samples = 0.05;
  int samples = 12;
  std::function<double(int, int)> factor = [](int, int) { return 1.0; };
  std::function<double(int, int)> latency_factor = [](int, int) { return 1.0; };
};

PairsRun measured(const Fabric& fabric, std::mt19937& random) {
  const std::vector<int> hosts =
      hosts_with(std::vector<int>(static_cast<std::size_t>(fabric.hosts), fabric.per_host));
  PairsRun run;
  for (const int host : hosts)
    run.sites.push_back({.host = fmt::format("h{}", host), .device = ""});
  run.groups = link_groups(hosts);
  std::normal_distribution noise(1.0, fabric.noise);
  std::uniform_real_distribution share(0.0, 1.0);
  const auto samples = [&](double seconds) {
    std::vector<double> made;
    for (int i = 0; i < fabric.samples; ++i)
      made.push_back(seconds * noise(random) *
                     (share(random) < fabric.long_samples ? 1 + 20 * share(random) : 1));
    return made;
  };
  for (const Round& round : rounds_of(run.groups, fabric.rounds))
    for (const GroupPair& pair : round) {
      const auto [a, b] = pair.ranks;
      const int x = a / fabric.per_host, y = b / fabric.per_host, size = fabric.hosts_per_switch;
      const double distance = x == y ? 0.2 : size == 0 || x / size == y / size ? 1 : 2;
      const double to = fabric.factor(a, b), back = fabric.factor(b, a);
      run.links.push_back(
          {.ranks = pair.ranks,
           .group = pair.group,
           .seconds = {samples(1e-5 * distance * fabric.latency_factor(a, b)),
                       samples(1e-2 * distance * to), samples(1e-2 * distance * back),
                       samples(1e-2 * distance * std::max(to, back))}});
    }
  find_classes(run);
  return run;
}

std::vector<std::tuple<SlowPart, int, int>> named(const Fabric& fabric, std::mt19937& random) {
  const PairsRun run = measured(fabric, random);
  std::vector<std::tuple<SlowPart, int, int>> found;
  for (const SlowFinding& each : find_slow(run, {}, Clock::wall)) {
    EXPECT_FALSE(text_of(run, each).empty());
    found.emplace_back(each.slow.part, each.slow.from, each.slow.to);
  }
  std::ranges::sort(found);
  return found;
}

using Named = std::vector<std::tuple<SlowPart, int, int>>;

bool are(int a, int b, int x, int y) { return std::minmax(a, b) == std::minmax(x, y); }

TEST(SlowLinks, ASlowHostIsNamedWhereverItIs) {
  std::mt19937 random(5);
  for (const int hosts : {3, 4, 5, 8, 16})
    for (int trial = 0; trial < 20; ++trial) {
      const int slow = static_cast<int>(random() % static_cast<unsigned>(hosts));
      const auto both = [&](int a, int b) { return a == slow || b == slow ? 10.0 : 1.0; };
      EXPECT_EQ(named({.hosts = hosts, .factor = both}, random),
                (Named{{SlowPart::unit, slow, slow}}));
      const int rounds = hosts >= 8 ? 3 : 0;
      EXPECT_EQ(named({.hosts = hosts, .rounds = rounds, .factor = both}, random),
                (Named{{SlowPart::unit, slow, slow}}));
    }
}

TEST(SlowLinks, ASlowCableIsNamedWhereverItIs) {
  std::mt19937 random(6);
  for (const int hosts : {4, 5, 8, 16})
    for (int trial = 0; trial < 20; ++trial) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(hosts)),
                b = (a + 1 + static_cast<int>(random() % static_cast<unsigned>(hosts - 1))) % hosts;
      const auto [low, high] = std::minmax(a, b);
      const auto both = [&](int x, int y) { return are(x, y, a, b) ? 10.0 : 1.0; };
      EXPECT_EQ(named({.hosts = hosts, .factor = both}, random),
                (Named{{SlowPart::cable, low, high}}));
      const auto one_way = [&](int x, int y) { return x == a && y == b ? 2.0 : 1.0; };
      EXPECT_EQ(named({.hosts = hosts, .factor = one_way}, random),
                (Named{{SlowPart::one_way, a, b}}));
    }
}

TEST(SlowLinks, DirectionsAndSeveralFaultsAreToldApart) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    EXPECT_EQ(named({.factor = [](int a, int) { return a == 3 ? 4.0 : 1.0; }}, random),
              (Named{{SlowPart::sending, 3, 3}}));
    EXPECT_EQ(named({.factor = [](int, int b) { return b == 6 ? 4.0 : 1.0; }}, random),
              (Named{{SlowPart::receiving, 6, 6}}));
    const auto two = [](int a, int b) {
      return a == 2 || b == 2 ? 10.0 : a == 5 || b == 5 ? 3.0 : 1.0;
    };
    EXPECT_EQ(named({.factor = two}, random),
              (Named{{SlowPart::unit, 2, 2}, {SlowPart::unit, 5, 5}}));
    const auto host_and_cable = [](int a, int b) {
      return a == 2 || b == 2 ? 10.0 : are(a, b, 0, 7) ? 5.0 : 1.0;
    };
    EXPECT_EQ(named({.factor = host_and_cable}, random),
              (Named{{SlowPart::unit, 2, 2}, {SlowPart::cable, 0, 7}}));
    // What one of its links shows in another measurement is no further fault.
    const auto host = [](int a, int b) { return a == 2 || b == 2 ? 10.0 : 1.0; };
    const auto one_late = [](int a, int b) { return are(a, b, 2, 6) ? 10.0 : 1.0; };
    EXPECT_EQ(named({.factor = host, .latency_factor = one_late}, random),
              (Named{{SlowPart::unit, 2, 2}}));
    const auto late = [](int a, int b) { return a == 4 || b == 4 ? 10.0 : 1.0; };
    EXPECT_EQ(named({.latency_factor = late}, random), (Named{{SlowPart::unit, 4, 4}}));
  }
}

TEST(SlowLinks, AreComparedWithinTheirClass) {
  std::mt19937 random(8);
  for (const int size : {2, 4})
    for (int trial = 0; trial < 20; ++trial) {
      EXPECT_EQ(named({.hosts_per_switch = size}, random), Named{});
      // As slow as links to the other switch, but to a neighbour.
      const auto near = [](int a, int b) { return are(a, b, 0, 1) ? 2.0 : 1.0; };
      EXPECT_EQ(named({.hosts_per_switch = size, .factor = near}, random),
                (Named{{SlowPart::cable, 0, 1}}));
      const auto host = [](int a, int b) { return a == 5 || b == 5 ? 2.0 : 1.0; };
      EXPECT_EQ(named({.hosts_per_switch = size, .factor = host}, random),
                (Named{{SlowPart::unit, 5, 5}}));
    }
}

TEST(SlowLinks, WhatWasOnceAsFastAsOthersIsNotNamed) {
  const auto named_with = [](double fastest, auto is_slow) {
    std::vector<LinkTime> links;
    for (int a = 0; a < 6; ++a)
      for (int b = a + 1; b < 6; ++b) {
        const bool slow = is_slow(a, b);
        links.push_back({.from = a,
                         .to = b,
                         .time = {.seconds = slow ? 2.0 : 1.0, .error = 0.001},
                         .fastest = slow ? fastest : 1.0});
      }
    return static_cast<int>(slow_links(6, links, false, {.share = 0.25}).size());
  };
  const auto cable = [](int a, int b) { return a == 1 && b == 4; };
  const auto unit = [](int a, int b) { return a == 2 || b == 2; };
  EXPECT_EQ(named_with(1.9, cable), 1);
  EXPECT_EQ(named_with(1.1, cable), 0);
  EXPECT_EQ(named_with(1.9, unit), 1);
  EXPECT_EQ(named_with(1.1, unit), 0);
}

TEST(SlowLinks, ACableIsNotNamedIfOneOfItsEndsIsSlowNowAndThen) {
  const auto number_named = [](double least, double step) {
    std::vector<LinkTime> links;
    for (int a = 0; a < 8; ++a)
      for (int b = a + 1; b < 8; ++b) {
        const bool is_cable = a == 3 && b == 4;
        const double seconds = is_cable ? 2.2 : a == 4 || b == 4 ? least + step * (a + b - 4) : 1;
        links.push_back({.from = a,
                         .to = b,
                         .time = {.seconds = seconds, .error = 0.001},
                         .fastest = is_cable ? 2.0 : 1.0});
      }
    const auto found = slow_links(8, links, false, {.share = 0.25});
    EXPECT_TRUE(std::ranges::all_of(found, [](const SlowLink& slow) {
      return slow.part == SlowPart::cable && slow.from == 3 && slow.to == 4;
    }));
    return found.size();
  };
  EXPECT_EQ(number_named(1, 0), 1u);
  EXPECT_EQ(number_named(1.8, 0), 0u);    // near the others of that end
  EXPECT_EQ(number_named(1.3, 0.1), 0u);  // and within their spread
}

TEST(SlowLinks, OfThreeLinksNoneIsNamedAlone) {
  for (const int units : {3, 4}) {
    std::vector<LinkTime> links, directed;
    for (int a = 0; a < units; ++a)
      for (int b = a + 1; b < units; ++b) {
        const double seconds = a == 0 && b == 2 ? 2 : 1;
        links.push_back({.from = a, .to = b, .time = {.seconds = seconds, .error = 0.001}});
        directed.insert(directed.end(), {links.back(), links.back()});
        std::swap(directed.back().from, directed.back().to);
      }
    EXPECT_EQ(slow_links(units, links, false, {}).size(), units == 3 ? 0u : 1u);
    EXPECT_EQ(slow_links(units, directed, true, {}).size(), units == 3 ? 0u : 1u);
  }
}

TEST(SlowLinks, WithOneLinkOfEachUnitNoEndIsBlamed) {
  std::mt19937 random(13);
  const auto host = [](int a, int b) { return a == 5 || b == 5 ? 10.0 : 1.0; };
  const auto text = [&](const Fabric& fabric) -> std::string {
    const PairsRun run = measured(fabric, random);
    const std::vector<SlowFinding> slow = find_slow(run, {}, Clock::wall);
    return slow.size() == 1 ? text_of(run, slow.front()) : "";
  };
  EXPECT_EQ(named({.hosts = 16, .rounds = 1, .factor = host}, random),
            (Named{{SlowPart::cable, 5, 10}}));
  EXPECT_TRUE(
      text({.hosts = 16, .rounds = 1, .factor = host})
          .starts_with("host h5 (rank 5) and host h10 (rank 10): that cable, or the link of "
                       "one of them; one way "));
  const auto rank = [&](int a, int b) { return a / 8 != b / 8 ? host(a, b) : 1.0; };
  EXPECT_EQ(named({.hosts = 2, .per_host = 8, .factor = rank}, random),
            (Named{{SlowPart::cable, 5, 13}}));
  // Two links of each: the one that is slow with both others is to blame.
  EXPECT_EQ(named({.hosts = 3, .per_host = 8, .factor = rank}, random),
            (Named{{SlowPart::unit, 5, 5}}));
  const auto sends = [](int a, int) { return a == 5 ? 10.0 : 1.0; };
  EXPECT_TRUE(
      text({.hosts = 16, .rounds = 1, .factor = sends})
          .starts_with("host h5 (rank 5) to host h10 (rank 10), in this direction only: that "
                       "cable, or the link of one of them; "));
}

TEST(SlowLinks, RanksOfAHostAreUnits) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 10; ++trial) {
    const Fabric healthy{.hosts = 4, .per_host = 4};
    EXPECT_EQ(named(healthy, random), Named{});
    Fabric fabric = healthy;  // rank 6 is slow with other hosts
    fabric.factor = [](int a, int b) { return a / 4 != b / 4 && (a == 6 || b == 6) ? 3.0 : 1.0; };
    EXPECT_EQ(named(fabric, random), (Named{{SlowPart::unit, 6, 6}}));
    fabric.factor = [](int a, int b) { return are(a, b, 8, 10) ? 3.0 : 1.0; };
    EXPECT_EQ(named(fabric, random), (Named{{SlowPart::cable, 8, 10}}));
    fabric.factor = [](int a, int b) { return a / 4 == b / 4 && (a == 9 || b == 9) ? 3.0 : 1.0; };
    EXPECT_EQ(named(fabric, random), (Named{{SlowPart::unit, 9, 9}}));
  }
}

TEST(SlowLinks, HealthyNoiseNamesNobody) {
  std::mt19937 random(10);
  int alarms = 0;
  constexpr int trials = 300;
  for (int trial = 0; trial < trials; ++trial)
    for (const double noise : {0.01, 0.05, 0.2})
      for (const int hosts : {2, 3, 8})
        alarms += !named({.hosts = hosts, .noise = noise, .long_samples = 0.1}, random).empty();
  EXPECT_LE(alarms, 1) << "of " << 9 * trials;
}

TEST(SlowLinks, FewSamplesAndTwoHostsNameNobody) {
  std::mt19937 random(11);
  const auto slow = [](int a, int b) { return a == 1 || b == 1 ? 10.0 : 1.0; };
  EXPECT_EQ(named({.samples = static_cast<int>(fewest_samples) - 1, .factor = slow}, random),
            Named{});
  EXPECT_EQ(named({.long_samples = 0, .samples = static_cast<int>(fewest_samples), .factor = slow},
                  random),
            (Named{{SlowPart::unit, 1, 1}}));
  EXPECT_EQ(named({.hosts = 2, .factor = slow}, random), Named{});
}

TEST(SlowLinks, TextsNameHostsAndTheirRanks) {
  std::mt19937 random(12);
  const auto text = [&](const Fabric& fabric) {
    const PairsRun run = measured(fabric, random);
    return text_of(run, find_slow(run, {}, Clock::wall).at(0));
  };
  const auto slow = [](int a, int b) { return a == 6 || b == 6 ? 10.0 : 1.0; };
  EXPECT_TRUE(text({.factor = slow})
                  .starts_with("host h6 (rank 6) is slow with 7 of 7 others: its link; one way "));
  const auto sends = [](int a, int) { return a == 6 ? 10.0 : 1.0; };
  EXPECT_TRUE(text({.factor = sends})
                  .starts_with("host h6 (rank 6) sends slowly to 7 of 7 others: its link; "));
  const auto cable = [](int a, int b) { return are(a, b, 2, 6) ? 10.0 : 1.0; };
  EXPECT_TRUE(text({.factor = cable})
                  .starts_with("host h2 (rank 2) and host h6 (rank 6) only: that cable; "));
  EXPECT_TRUE(
      text({.hosts = 4,
            .per_host = 2,
            .factor = [](int a, int b) { return a == 3 && b == 5 ? 10.0 : 1.0; }})
          .starts_with(
              "rank 3 (host h1) to rank 5 (host h2), in this direction only: that cable; "));
}

PairsRun run_virtually(int ranks, const std::string& links, const PairsOptions& options,
                       const std::vector<LinkSlowdown>& slow_links = {}) {
  const LaunchOptions world{.ranks = ranks,
                            .clock = Clock::unit,
                            .links = parse_links(links),
                            .slow_links = slow_links,
                            .device = options.device};
  PairsRun run;
  launch(world, [&](RankContext& context) {
    PairsRun mine = measure_pairs(context, options, world);
    if (context.world.rank() == 0) run = std::move(mine);
  });
  return run;
}

double only(const std::vector<double>& samples) {
  EXPECT_EQ(samples.size(), 1u);
  return samples.front();
}

TEST(Pairs, VirtualTimesEqualTheClosedForms) {
  const PairsOptions options{.small_bytes = 8,
                             .large_bytes = 1024,
                             .window = 4,
                             .iterations = 1,
                             .warmup = 0,
                             .device = &none_device()};
  for (const int ranks : {2, 3, 5, 8})
    for (const std::string links :
         {"alpha=2,beta=0.25", "alpha=16,beta=0.5,node=4,node-alpha=1,node-beta=0.125"}) {
      if (ranks == 5 && links.size() > 20) continue;
      const LinkModel model = parse_links(links);
      const PairsRun run = run_virtually(ranks, links, options);
      EXPECT_EQ(run.links.size(), wanted_pairs(hosts_with(ranks == 8 && model.ranks_per_node > 0
                                                              ? std::vector{4, 4}
                                                              : std::vector{ranks}))
                                      .size());
      for (const MeasuredLink& each : run.links) {
        const Link& link = model.link(each.ranks.first, each.ranks.second);
        const double window = 4 * 1024 * link.beta_s_per_byte;
        EXPECT_EQ(only(each.of(LinkTest::latency)), link.seconds(8));
        EXPECT_EQ(only(each.of(LinkTest::forward)), 2 * link.alpha_s + window);
        EXPECT_EQ(only(each.of(LinkTest::backward)), 2 * link.alpha_s + window);
        EXPECT_EQ(only(each.of(LinkTest::both_ways)), link.alpha_s + window);
      }
      EXPECT_TRUE(run.slow.empty());
    }
}

TEST(Pairs, VirtualTimesOfTheFabricEqualTheClosedForms) {
  const PairsOptions options{.small_bytes = 8,
                             .large_bytes = 1024,
                             .window = 4,
                             .iterations = 1,
                             .warmup = 0,
                             .device = &none_device()};
  constexpr double alpha = 2, beta = 0.25;
  for (const int ranks : {2, 3, 6, 9}) {
    const PairsRun run = run_virtually(ranks, "alpha=2,beta=0.25", options);
    const double crossing = alpha + 4 * 1024 * beta;
    std::vector<int> rates;
    for (const FabricTest& test : run.tests) {
      const double seconds = only(test.seconds);
      const bool is_rate = test.name == "message_rate";
      if (is_rate) rates.push_back(test.pairs);
      EXPECT_EQ(seconds, is_rate                 ? 2 * alpha + 64 * 8 * beta
                         : test.name == "incast" ? alpha + (ranks - 1) * 1024 * beta
                                                 : crossing)
          << test.name;
    }
    EXPECT_EQ(run.computing, crossing);  // all of it is hidden: virtual links need no processor
    const std::map<int, std::vector<int>> wanted = {
        {2, {1}}, {3, {1}}, {6, {1, 2, 3}}, {9, {1, 2, 4}}};
    EXPECT_EQ(rates, wanted.at(ranks));
  }
}

TEST(Pairs, ASlowLinkIsNamedInVirtualTimeByOneSample) {
  const PairsOptions options{.small_bytes = 8,
                             .large_bytes = 1024,
                             .iterations = 1,
                             .warmup = 0,
                             .device = &none_device()};
  PairsRun run = run_virtually(8, "alpha=2,beta=0.25", options);
  for (MeasuredLink& link : run.links)
    if (are(link.ranks.first, link.ranks.second, 2, 5))
      for (std::vector<double>& seconds : link.seconds)
        for (double& each : seconds) each *= 1.5;
  const std::vector<SlowFinding> slow = find_slow(run, options, Clock::unit);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].slow.part, SlowPart::cable);
  EXPECT_EQ(slow[0].ratios.size(), 3u);
  EXPECT_TRUE(find_slow(run, {.effect = 0.6}, Clock::unit).empty());
}

// What is named of eight hosts, and the measured times of all links, which must follow the closed
// forms with `factor` times the seconds per byte.
Named named_of_planted(const std::vector<LinkSlowdown>& slow_links,
                       const std::function<double(int, int)>& factor, double effect = 0.25) {
  const PairsOptions options{.small_bytes = 8,
                             .large_bytes = 1024,
                             .window = 4,
                             .iterations = 1,
                             .warmup = 0,
                             .effect = effect,
                             .device = &none_device()};
  constexpr double alpha = 16, beta = 0.25;
  const PairsRun run = run_virtually(8, "alpha=16,beta=0.25,node=1", options, slow_links);
  for (const MeasuredLink& each : run.links) {
    const double of_byte = factor(each.ranks.first, each.ranks.second) * beta;
    const double window = 4 * 1024 * of_byte;
    EXPECT_EQ(only(each.of(LinkTest::latency)), alpha + 8 * of_byte);
    EXPECT_EQ(only(each.of(LinkTest::forward)), 2 * alpha + window);
    EXPECT_EQ(only(each.of(LinkTest::backward)), 2 * alpha + window);
    EXPECT_EQ(only(each.of(LinkTest::both_ways)), alpha + window);
  }
  Named found;
  for (const SlowFinding& each : run.slow)
    found.emplace_back(each.slow.part, each.slow.from, each.slow.to);
  std::ranges::sort(found);
  return found;
}

TEST(Pairs, APlantedHostIsNamedWhereverItIs) {
  for (int slow = 0; slow < 8; ++slow)
    for (const double factor : {1.5, 10.0})
      EXPECT_EQ(named_of_planted({{.rank = slow, .factor = factor}},
                                 [&](int a, int b) { return a == slow || b == slow ? factor : 1; }),
                (Named{{SlowPart::unit, slow, slow}}));
}

TEST(Pairs, APlantedCableIsNamedWhereverItIs) {
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b) {
      const auto factor = [&](int x, int y) { return are(x, y, a, b) ? 1.5 : 1.0; };
      // Named in either order.
      const auto [first, second] = (a + b) % 2 == 0 ? std::pair(a, b) : std::pair(b, a);
      const std::vector<LinkSlowdown> planted = {{.rank = first, .peer = second, .factor = 1.5}};
      EXPECT_EQ(named_of_planted(planted, factor), (Named{{SlowPart::cable, a, b}}));
      EXPECT_EQ(named_of_planted(planted, factor, 0.6), Named{}) << "the effect is smaller";
    }
}

TEST(Pairs, APlantedHostAndACableAreBothNamed) {
  EXPECT_EQ(named_of_planted({{.rank = 2, .factor = 10}, {.rank = 7, .peer = 0, .factor = 5}},
                             [](int a, int b) {
                               return a == 2 || b == 2 ? 10.0 : are(a, b, 0, 7) ? 5.0 : 1.0;
                             }),
            (Named{{SlowPart::unit, 2, 2}, {SlowPart::cable, 0, 7}}));
}

TEST(Pairs, RefuseImpossibleOptions) {
  const auto refused = [](PairsOptions options, int ranks) {
    try {
      check(options, ranks);
    } catch (const Error& error) {
      return error.exit_status() == 2;
    }
    return false;
  };
  EXPECT_FALSE(refused({}, 2));
  EXPECT_TRUE(refused({}, 1));
  EXPECT_TRUE(refused({.small_bytes = 0}, 2));
  EXPECT_TRUE(refused({.small_bytes = 9, .large_bytes = 8}, 2));
  EXPECT_TRUE(refused({.window = 0}, 2));
  EXPECT_TRUE(refused({.iterations = 0}, 2));
  EXPECT_TRUE(refused({.warmup = -1}, 2));
  EXPECT_TRUE(refused({.rounds = -1}, 2));
  EXPECT_TRUE(refused({.effect = 0}, 2));
  EXPECT_TRUE(refused({.effect = std::nan("")}, 2));
}

}  // namespace
}  // namespace lockstep
