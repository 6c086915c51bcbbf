// What a burn-in says of given measurements: each fault is named with its host, and nothing else is;
// noise names nobody. And that steps repeat bit by bit, and a flipped bit does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "bench/burn_in/findings.h"
#include "bench/burn_in/rank_tests.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

using Bits = std::vector<std::vector<StepBits>>;

Bits same_bits(std::size_t ranks, std::size_t steps) {
  Bits bits(ranks, std::vector<StepBits>(steps));
  for (auto& rank : bits)
    for (std::size_t step = 0; step < steps; ++step)
      rank[step] = {.first = 7 + step, .again = 7 + step};
  return bits;
}

std::vector<std::pair<int, WrongBits>> wrong_ranks(const std::vector<WrongStep>& wrong) {
  std::vector<std::pair<int, WrongBits>> ranks;
  for (const WrongStep& each : wrong) ranks.emplace_back(each.rank, each.kind);
  return ranks;
}

using Ranks = std::vector<std::pair<int, WrongBits>>;

TEST(ReplayVotes, NamesTheRankWhereverTheBitIs) {
  for (std::size_t ranks = 1; ranks <= 5; ++ranks)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::size_t step = 0; step < 3; ++step) {
        const std::vector<int> one_kind(ranks, 0);
        ReplayVotes votes;
        EXPECT_TRUE(votes.judge(same_bits(ranks, 3), one_kind).empty());
        Bits once = same_bits(ranks, 3), twice = once;
        once[rank][step].first ^= 1;
        twice[rank][step] = {.first = 1, .again = 1};
        const int number = static_cast<int>(rank);
        EXPECT_EQ(wrong_ranks(votes.judge(once, one_kind)), (Ranks{{number, WrongBits::changing}}));
        EXPECT_EQ(wrong_ranks(votes.judge(twice, one_kind)),
                  (Ranks{{number, WrongBits::different}}));
        EXPECT_EQ(votes.compared(), static_cast<std::int64_t>(3 * 3 * ranks));
      }
}

TEST(ReplayVotes, AMajorityIsNeeded) {
  const std::vector<int> kinds = {0, 0};
  Bits bits = same_bits(2, 1);
  bits[1][0] = {.first = 1, .again = 1};
  ReplayVotes votes;
  const Ranks both = {{0, WrongBits::disputed}, {1, WrongBits::disputed}};
  EXPECT_EQ(wrong_ranks(votes.judge(bits, kinds)), both);
  // Two times the right bits, once others: the majority of four votes.
  bits[1][0] = {.first = 7, .again = 1};
  EXPECT_EQ(wrong_ranks(ReplayVotes().judge(bits, kinds)), (Ranks{{1, WrongBits::changing}}));
}

TEST(ReplayVotes, ProcessorsOfDifferentKindsMayDiffer) {
  Bits bits = same_bits(4, 2);
  for (const std::size_t rank : {1, 3}) bits[rank] = {{1, 1}, {2, 2}};
  EXPECT_TRUE(ReplayVotes().judge(bits, std::vector{0, 1, 0, 1}).empty());
  EXPECT_FALSE(ReplayVotes().judge(bits, std::vector{0, 0, 0, 0}).empty());
}

TEST(BurnInSeries, KeepsAnyLengthInBoundedMemory) {
  Series series;
  constexpr std::size_t count = 100'000;
  for (std::size_t i = 0; i < count; ++i) series.add(static_cast<double>(i));
  EXPECT_LT(series.values().size(), 256);
  EXPECT_GE(series.values().size(), 128);
  for (std::size_t i = 0; i < series.values().size(); ++i)
    EXPECT_EQ(series.values()[i], static_cast<double>(series.number_of(i)));
  EXPECT_GT(series.values().back(), 0.98 * count);
}

TEST(BurnInSeries, FindsASlowdownThatLasts) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.03);
  for (const std::size_t length : {40, 400, 4000}) {
    Series steady, slower, back;
    for (std::size_t i = 0; i < length; ++i) {
      const double time = noise(random);
      steady.add(time);
      slower.add(i < length / 2 ? time : 1.5 * time);
      back.add(i < length / 3 || i >= 2 * length / 3 ? time : 1.5 * time);
    }
    EXPECT_EQ(slowdown_of(steady, 0.25).ratio, 1);
    EXPECT_EQ(slowdown_of(back, 0.25).ratio, 1);
    const Slowdown found = slowdown_of(slower, 0.25);
    EXPECT_NEAR(found.ratio, 1.5, 0.05);
    EXPECT_NEAR(static_cast<double>(found.at) / static_cast<double>(length), 0.5, 0.05);
  }
}

// A healthy run: hosts h0, h1, ... with a rank each.
struct GivenRun {
  BurnInOptions options;
  BurnInRun run;
  std::mt19937 random{5};

  explicit GivenRun(int hosts) {
    const auto count = static_cast<std::size_t>(hosts);
    run.passes = 10;
    run.products.resize(count), run.copies.resize(count), run.wrong_sums.resize(count);
    for (const WrongBits kind : {WrongBits::changing, WrongBits::different, WrongBits::disputed})
      run.wrong_bits[kind].resize(count);
    run.all_reduces.resize(options.all_reduce_bytes.size());
    for (int host = 0; host < hosts; ++host)
      run.machines.push_back({.site = {.host = "h" + std::to_string(host), .device = "host"},
                              .processor = "P",
                              .cores = 4,
                              .memory_bytes = 1e9});
    for (int i = 0; i < 40; ++i) {
      for (Series& each : run.products) each.add(noisy(2));
      for (Series& each : run.copies) each.add(noisy(3));
      for (std::size_t size = 0; size < run.all_reduces.size(); ++size)
        run.all_reduces[size].add(noisy(1 + static_cast<double>(size)));
    }
  }
  double noisy(double seconds) {
    return seconds * std::normal_distribution<double>(1, 0.03)(random);
  }
  static Series steady(double seconds) {
    Series series;
    for (int i = 0; i < 40; ++i) series.add(seconds * (1 + 0.001 * (i % 3)));
    return series;
  }
  std::vector<std::pair<int, std::vector<std::string>>> codes() const {
    std::vector<std::pair<int, std::vector<std::string>>> found;
    for (const Finding& each : findings_of(run, options)) {
      EXPECT_FALSE(each.text.empty());
      EXPECT_TRUE(each.next.starts_with("lockstep ")) << each.next;
      found.emplace_back(each.code, each.hosts);
    }
    return found;
  }
};

using Codes = std::vector<std::pair<int, std::vector<std::string>>>;

// An error that names a rank is that of its host, any other one of all.
TEST(BurnInFindings, SayWhatEndedTheRun) {
  const GivenRun given(3);
  const auto ended = [&](const ErrorContext& context) {
    return ended_by(given.run, Error(ErrorKind::lost_rank, "rank 1 died", context));
  };
  EXPECT_EQ(ended({.failed_rank = 1}).hosts, std::vector<std::string>{"h1"});
  EXPECT_EQ(ended({.peer = 2}).hosts, std::vector<std::string>{"h2"});
  EXPECT_EQ(ended({}).hosts, std::vector<std::string>{});
  const Finding finding = ended({.failed_rank = 1});
  EXPECT_EQ(finding.code, 801);
  EXPECT_EQ(verdict_of({finding}), Health::fail);
  EXPECT_TRUE(finding.text.starts_with("pass 10 did not end: [lost rank] rank 1 died"))
      << finding.text;
}

TEST(BurnInFindings, NameEachFaultAndItsHost) {
  EXPECT_EQ(GivenRun(5).codes(), Codes{});
  for (std::size_t host = 0; host < 5; ++host) {
    const std::vector<std::string> name = {"h" + std::to_string(host)};
    GivenRun given(5);
    const BurnInRun healthy = given.run;
    BurnInRun& run = given.run;
    const auto expect = [&](int code, auto fault) {
      fault();
      EXPECT_EQ(given.codes(), (Codes{{code, name}}));
      run = healthy;
    };
    expect(101, [&] { run.machines[host].cores = 3; });
    expect(101, [&] { run.machines[host].memory_bytes = 0.9e9; });
    expect(201, [&] { run.products[host] = GivenRun::steady(4); });
    expect(202, [&] { run.copies[host] = GivenRun::steady(6); });
    expect(401, [&] { run.wrong_sums[host].add(3); });
    expect(501, [&] { run.wrong_bits[WrongBits::changing][host].add(3); });
    expect(502, [&] { run.wrong_bits[WrongBits::different][host].add(3); });
    expect(503, [&] { run.wrong_bits[WrongBits::disputed][host].add(3); });
    expect(301, [&] {
      const int rank = static_cast<int>(host);
      for (const RankMachine& machine : run.machines) run.links.sites.push_back(machine.site);
      run.links.slow.push_back(
          {.slow = {.part = SlowPart::unit, .from = rank, .to = rank}, .ratios = {{"latency", 3}}});
    });
  }
}

TEST(BurnInFindings, ASlowHostExplainsItsCables) {
  GivenRun given(5);
  for (const RankMachine& machine : given.run.machines)
    given.run.links.sites.push_back(machine.site);
  for (const auto& [from, to] : {std::pair(1, 2), std::pair(2, 3), std::pair(3, 4)})
    given.run.links.slow.push_back(
        {.slow = {.part = SlowPart::cable, .from = from, .to = to}, .ratios = {{"latency", 3}}});
  EXPECT_EQ(given.codes(), (Codes{{302, {"h1", "h2"}}, {302, {"h2", "h3"}}, {302, {"h3", "h4"}}}));
  given.run.products[2] = GivenRun::steady(4);
  EXPECT_EQ(given.codes(), (Codes{{201, {"h2"}}, {302, {"h3", "h4"}}}));
  // Fewer cores do not make a cable slow.
  given.run.machines[3].cores = 3;
  EXPECT_EQ(given.codes(), (Codes{{101, {"h3"}}, {201, {"h2"}}, {302, {"h3", "h4"}}}));
}

TEST(BurnInReplay, ASampleOutlastsOtherProcesses) {
  const auto taken = [](auto&& sample) {
    const auto begin = std::chrono::steady_clock::now();
    sample();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  ProductTest product(host_device(), 16);
  CopyTest copy(host_device(), 4096);
  double one = 0;
  EXPECT_GE(taken([&] { one = product.seconds(); }), 0.05);
  EXPECT_LT(one, 0.05) << "it is the mean of many";
  EXPECT_GE(taken([&] { one = copy.seconds(); }), 0.05);
  EXPECT_LT(one, 0.05);
}

TEST(BurnInFindings, NameWhatConcernsAll) {
  GivenRun given(3);
  given.run.all_reduces[1] = GivenRun::steady(9);
  EXPECT_EQ(given.codes(), (Codes{{402, {}}}));
  GivenRun later(3);
  for (int i = 0; i < 40; ++i) later.run.all_reduces[3].add(8);
  EXPECT_EQ(later.codes(), (Codes{{601, {}}}));
}

TEST(BurnInFindings, TheWorstIsTheVerdict) {
  GivenRun given(4);
  given.run.products[1] = GivenRun::steady(4);
  given.run.wrong_bits[WrongBits::changing][2].add(0);
  const std::vector<Finding> found = findings_of(given.run, given.options);
  EXPECT_EQ(verdict_of(found), Health::fail);
  std::vector<Health> hosts;
  for (const HostVerdict& each : verdicts_of(given.run, found)) hosts.push_back(each.verdict);
  EXPECT_EQ(hosts, (std::vector{Health::pass, Health::degraded, Health::fail, Health::pass}));
}

// Those of a process that had two competitors, as they were measured, vary tenfold.
TEST(BurnInFindings, NameAHostWhoseSamplesVary) {
  constexpr double competing[] = {1572, 2940, 8477, 15902, 4152, 2073,
                                  2748, 4181, 3366, 4826,  3904, 7981},
                   usual[] = {1495, 1524, 1433, 1579, 1477, 1522,
                              1458, 1611, 1490, 1440, 1530, 1702};
  const auto series = [](const auto& samples, int first) {
    Series all;
    for (std::size_t i = 0; i < std::size(samples); ++i)
      all.add(samples[(i + static_cast<std::size_t>(first)) % std::size(samples)]);
    return all;
  };
  GivenRun given(8);
  for (int host = 0; host < 8; ++host)
    given.run.products[static_cast<std::size_t>(host)] = series(usual, host);
  EXPECT_EQ(given.codes(), Codes{});
  given.run.products[1] = series(competing, 0);
  EXPECT_EQ(given.codes(), (Codes{{201, {"h1"}}}));
  // Half of the samples are as fast as others'.
  Series some;
  for (int i = 0; i < 6; ++i) some.add(1500 + i), some.add(competing[i] + 3000);
  given.run.products[1] = some;
  EXPECT_EQ(given.codes(), Codes{});
}

// All hosts may lack the same.
TEST(BurnInFindings, NameHostsWithLessThanExpected) {
  const Codes all = {{101, {"h0"}}, {101, {"h1"}}}, one = {{101, {"h1"}}};
  GivenRun given(2);
  const ExpectedParts nothing;
  const auto expect = [&](auto set, const Codes& codes) {
    set(given.options.expected);
    EXPECT_EQ(given.codes(), codes);
    given.options.expected = nothing;
  };
  expect([](ExpectedParts& o) { o.cores = 8; }, all);
  expect([](ExpectedParts& o) { o.cores = 4; }, {});
  expect([](ExpectedParts& o) { o.gpus = 1; }, all);
  given.run.machines[0].gpus = 64, given.run.machines[1].gpus = 63;
  expect([](ExpectedParts& o) { o.gpus = 64; }, one);
  given.run.machines[0].gpus = given.run.machines[1].gpus = 0;
  expect([](ExpectedParts& o) { o.memory_bytes = 1'200'000'000; }, all);
  expect([](ExpectedParts& o) { o.memory_bytes = 1'000'000'000; }, {});
  given.run.machines[1].cores = 3;
  expect([](ExpectedParts& o) { o.cores = 4; }, one);
  given.options.expected.cores = 4;
  EXPECT_EQ(findings_of(given.run, given.options).at(0).text, "has 3 cores, expected 4");
}

TEST(BurnInFindings, OfTwoMachinesNoneIsTheSlowOne) {
  GivenRun given(2);
  given.run.products[1] = GivenRun::steady(9);
  EXPECT_EQ(given.codes(), Codes{});
}

TEST(BurnInReplay, BitsRepeatUnlessOneIsFlipped) {
  TrainOptions training = BurnInOptions().training;
  training.data = testing::TempDir() + "burn_in_text";
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>('a' + i * i % 26);
  write_file(training.data, text);
  training.steps = 3;
  const auto bits = [&](std::optional<FlippedBit> flipped) {
    return replay(training, host_device(), flipped, 10);
  };
  const std::vector<StepBits> right = bits({});
  ASSERT_EQ(right.size(), 3);
  EXPECT_NE(right[0].first, right[1].first);
  const std::vector<StepBits> wrong = bits(FlippedBit{.rank = 0, .step = 11});
  for (std::size_t step = 0; step < right.size(); ++step) {
    EXPECT_EQ(right[step].first, right[step].again);
    EXPECT_EQ(wrong[step].again, right[step].again);
    EXPECT_EQ(wrong[step].first == right[step].first, step != 1);
  }
}

}  // namespace
}  // namespace lockstep
