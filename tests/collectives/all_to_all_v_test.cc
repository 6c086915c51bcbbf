// All-to-all with a count for every pair: results, counters and times against the matrix of counts;
// wrong counts and other faults are found and named.
#include "collectives/all_to_all_v/all_to_all_v.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/operations/operations.h"
#include "collectives/transport/launch/launch.h"
#include "collectives/tuning.h"

namespace lockstep {
namespace {

using Rule = std::function<Count(int from, int to, int ranks)>;

struct NamedRule {
  std::string name;
  Rule count;
};

const std::vector<NamedRule> rules = {
    {"differs for every pair, some empty",
     [](int from, int to, int) -> Count { return (from * 3 + to * 5) % 7; }},
    {"nothing", [](int, int, int) -> Count { return 0; }},
    {"only to itself", [](int from, int to, int) -> Count { return from == to ? 9 : 0; }},
    {"all to rank 0", [](int, int to, int) -> Count { return to == 0 ? 40 : 0; }},
    {"all from the last", [](int from, int, int p) -> Count { return from == p - 1 ? 40 : 1; }},
    {"by distance", [](int from, int to, int p) -> Count { return (to - from + p) % p * 4; }},
    {"equal", [](int, int, int) -> Count { return 12; }},
    {"several segments",
     [](int from, int to, int) -> Count { return (from + 2 * to) % 3 * 150'001; }},
};

CountMatrix matrix_of(const Rule& count, int ranks) {
  std::vector<Count> rows;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) rows.push_back(count(from, to, ranks));
  return CountMatrix(ranks, std::move(rows));
}

std::int32_t element(int from, int to, Count i) {
  return static_cast<std::int32_t>(from * 1'000'003 + to * 10'007 + i);
}

// What a rank brings, gets and must get.
struct Buffers {
  Buffers(int rank, int ranks, const Rule& count) {
    for (int other = 0; other < ranks; ++other) {
      in_counts.push_back(count(rank, other, ranks));
      out_counts.push_back(count(other, rank, ranks));
      for (Count i = 0; i < in_counts.back(); ++i) in.push_back(element(rank, other, i));
      for (Count i = 0; i < out_counts.back(); ++i) wanted.push_back(element(other, rank, i));
    }
    out.resize(wanted.size());
  }
  void run(Communicator& comm, std::string_view algorithm = "pairwise") {
    all_to_all_v(comm, host_slice(std::span(out)), host_slice(std::span(in)),
                 {.in = in_counts, .out = out_counts}, algorithm);
  }

  std::vector<Count> in_counts, out_counts;
  std::vector<std::int32_t> in, out, wanted;
};

const std::vector<std::string> names = {"pairwise", "linear"};

const AnyAlgorithm& entry_of(const std::string& name) {
  return *std::ranges::find(find_operation("all_to_all_v").algorithms, name, &AnyAlgorithm::name);
}

void check_in_virtual_time(const NamedRule& rule, const std::string& name, int ranks) {
  SCOPED_TRACE(fmt::format("{}, {}, {} ranks", rule.name, name, ranks));
  const LinkModel links = parse_links("alpha=64,beta=0.25");
  const AnyAlgorithm& algorithm = entry_of(name);
  const Problem x{.ranks = ranks, .element_bytes = 4, .counts = matrix_of(rule.count, ranks)};
  double end = 0;
  launch({.ranks = ranks, .fault = {}, .clock = Clock::unit, .links = links},
         [&](RankContext& context) {
           const int rank = context.world.rank();
           Buffers buffers(rank, ranks, rule.count);
           buffers.run(context.world, name);
           ASSERT_EQ(buffers.out, buffers.wanted);
           Volume counted;
           const auto labels = context.counters.by_label();
           if (const auto found = labels.find("all_to_all_v"); found != labels.end())
             counted = found->second;
           const Traffic closed = algorithm.traffic(x, rank);
           EXPECT_EQ(counted.sent_messages, ranks - 1);
           EXPECT_EQ(counted.received_messages, ranks - 1);
           EXPECT_EQ(closed.sent_messages, ranks - 1);
           EXPECT_EQ(closed.received_messages, ranks - 1);
           EXPECT_EQ(counted.sent_bytes, 4 * closed.sent_elements);
           EXPECT_EQ(counted.received_bytes, 4 * closed.received_elements);
           EXPECT_EQ(closed.sent_elements, std::ssize(buffers.in) - buffers.in_counts[rank]);
           EXPECT_EQ(closed.received_elements, std::ssize(buffers.out) - buffers.out_counts[rank]);
           end = std::max(end, context.world.transport().now_seconds());
         });
  if (ranks == 1) {
    EXPECT_EQ(end, 0);
    return;
  }
  Count most_sent = 0, most_received = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    most_sent = std::max(most_sent, algorithm.traffic(x, rank).sent_elements);
    most_received = std::max(most_received, algorithm.traffic(x, rank).received_elements);
  }
  EXPECT_EQ(busiest(x).elements, std::max(most_sent, most_received));
  // No algorithm is faster than its busiest rank; this one does all at once.
  const double busy_s = 64 + static_cast<double>(std::max(most_sent, most_received));
  EXPECT_GE(end, busy_s);
  if (name == "linear") {
    EXPECT_EQ(algorithm.seconds(x, links), busy_s);
    EXPECT_LE(end, 64 + static_cast<double>(most_sent + most_received));
  }
  const Estimate form = estimate(algorithm, x, links);
  EXPECT_EQ(form.is_exact, stays_in_step(x));
  EXPECT_EQ(form.is_bound, form.is_exact) << "messages overtake";
  if (form.is_exact)
    EXPECT_EQ(end, form.seconds);
  else
    EXPECT_LE(end, 2 * form.seconds) << "an estimate";
}

TEST(AllToAllV, ResultsTrafficAndTimeFollowTheMatrix) {
  for (const int ranks : LOCKSTEP_THOROUGH ? std::vector{1, 2, 3, 4, 5, 8} : std::vector{1, 2, 5})
    for (const NamedRule& rule : rules)
      for (const std::string& name : names) check_in_virtual_time(rule, name, ranks);
}

TEST(AllToAllV, RanksStayInStepIfAllSendAlike) {
  const auto in_step = [](const Rule& count, int ranks = 4) {
    return stays_in_step({.ranks = ranks, .counts = matrix_of(count, ranks)});
  };
  EXPECT_TRUE(in_step([](int from, int, int) -> Count { return from; }, 2));
  EXPECT_FALSE(in_step([](int from, int, int) -> Count { return from; }, 3));
  EXPECT_TRUE(in_step([](int from, int to, int) -> Count { return (to - from + 4) % 4 == 3; }));
  EXPECT_FALSE(in_step([](int from, int to, int) -> Count { return from == 2 && to == 1; }));
  EXPECT_TRUE(in_step([](int from, int to, int) -> Count { return from == 2 && to == 2; }));
}

// 16 tokens of 4 ranks go to 2 of 8 experts each: the experts' loads are equal, the ranks' traffic
// is not.
TEST(AllToAllV, TokensForExperts) {
  const Problem x{.ranks = 4,
                  .counts = CountMatrix(4, {4, 2, 0, 2, 0, 2, 4, 2, 4, 2, 0, 2, 0, 2, 4, 2})};
  const std::vector<Count> sent = {4, 6, 8, 6}, received = {4, 6, 8, 6};
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(all_to_all_v_traffic(x, rank), (Traffic{3, sent[static_cast<std::size_t>(rank)], 3,
                                                      received[static_cast<std::size_t>(rank)]}));
  EXPECT_EQ(busiest(x).rank, 2);
  EXPECT_EQ(busiest(x).elements, 8);
  EXPECT_FALSE(busiest(x).receives);
}

TEST(AllToAllV, ResultsOnThreads) {
  for (const int ranks : {1, 2, 3, 5})
    for (const std::string& name : names)
      launch({.ranks = ranks, .fault = {}}, [&](RankContext& context) {
        for (const NamedRule& rule : rules) {
          Buffers buffers(context.world.rank(), ranks, rule.count);
          buffers.run(context.world, name);
          ASSERT_EQ(buffers.out, buffers.wanted) << rule.name << ", " << name;
        }
      });
}

TEST(AllToAllV, IsCountedUnderTheLabelOfItsCommunicator) {
  launch({.ranks = 2, .fault = {}}, [&](RankContext& context) {
    context.world.set_label("dispatch");
    Buffers buffers(context.world.rank(), 2, [](int, int, int) { return 3; });
    buffers.run(context.world);
    EXPECT_EQ(context.counters.by_label().at("dispatch").sent_bytes, 12);
    EXPECT_FALSE(context.counters.by_label().contains("all_to_all_v"));
  });
}

// Ranks with different counts must make the same choice.
TEST(AllToAllV, AutoDoesNotDependOnCounts) {
  const Tuning tuning{{{Operation::all_to_all_v, "virtual", 3, 0, "linear"},
                       {Operation::all_to_all_v, "virtual", 3, 100, "pairwise"}}};
  for (const Tuning* const given : {static_cast<const Tuning*>(nullptr), &tuning})
    launch({.ranks = 3, .fault = {}, .clock = Clock::unit, .tuning = given},
           [&](RankContext& context) {
             Buffers buffers(context.world.rank(), 3,
                             [](int from, int, int) -> Count { return from * 1000; });
             buffers.run(context.world, "auto");
             ASSERT_EQ(buffers.out, buffers.wanted);
           });
}

TEST(AllToAllV, CountsThatARankCanSeeAreWrongAreRefused) {
  const auto refused = [](const std::function<void(Buffers&)>& spoil, const std::string& part) {
    launch({.ranks = 1, .fault = {}}, [&](RankContext& context) {
      Buffers buffers(0, 1, [](int, int, int) { return 4; });
      spoil(buffers);
      try {
        buffers.run(context.world);
        ADD_FAILURE() << "not refused: " << part;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_input);
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    });
  };
  refused([](Buffers& b) { b.in_counts.push_back(0); }, "2 counts of in for 1 ranks");
  refused([](Buffers& b) { b.out_counts = {-4}; }, "out[0] is -4");
  refused([](Buffers& b) { b.in_counts = {5}; }, "the counts of in sum to 5, but it has 4");
  refused([](Buffers& b) { b.out.resize(3), b.out_counts = {3}; },
          "rank 0 sends itself 4 i32 and receives 3 i32");
}

// The first error of a world.
std::optional<Error> error_of(const LaunchOptions& options,
                              const std::function<void(RankContext&)>& program) {
  try {
    launch(options, program);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// One rank expects another count than the other sends, also none where there is one.
TEST(AllToAllV, AWrongCountOfAPairNamesBothRanksAndSizes) {
  constexpr int ranks = 3;
  for (const Clock clock : {Clock::unit, Clock::wall})
    for (const std::string& name : names)
      for (const auto& [sent, expected] : {std::pair{5, 4}, {4, 5}, {0, 2}, {2, 0}})
        for (int from = 0; from < ranks; ++from)
          for (int to = 0; to < ranks; ++to) {
            if (from == to) continue;
            SCOPED_TRACE(fmt::format("{}, {} to {}, {} for {}", name, from, to, sent, expected));
            const auto error =
                error_of({.ranks = ranks, .timeout_s = 5, .fault = {}, .clock = clock},
                         [&](RankContext& context) {
                           const int rank = context.world.rank();
                           const Count mine = rank == to ? expected : sent;
                           Buffers buffers(rank, ranks, [&](int a, int b, int) -> Count {
                             return a == from && b == to ? mine : 3;
                           });
                           buffers.run(context.world, name);
                         });
            ASSERT_TRUE(error);
            EXPECT_EQ(error->kind(), ErrorKind::mismatch) << error->what();
            EXPECT_EQ(error->context().rank, to);
            EXPECT_EQ(error->context().peer, from);
            EXPECT_EQ(error->context().expected, fmt::format("{} i32", expected));
            EXPECT_EQ(error->context().got, fmt::format("{} i32", sent));
            EXPECT_TRUE(error->context().operation.starts_with("all_to_all_v/" + name));
          }
}

void uneven(RankContext& context, const std::string& name) {
  Buffers(context.world.rank(), context.world.size(), rules[0].count).run(context.world, name);
}

TEST(AllToAllV, PlantedFaultsNameTheirRank) {
  using enum FaultKind;
  for (const std::string& name : names)
    for (const FaultKind kind : {throws, skips, count, dtype, op, root, order})
      for (const int culprit : {0, 3}) {
        SCOPED_TRACE(fmt::format("{}, kind {}, rank {}", name, static_cast<int>(kind), culprit));
        const auto error =
            error_of({.ranks = 4, .timeout_s = 10, .fault = FaultPlan{culprit, 1, kind}},
                     [&](RankContext& context) {
                       uneven(context, name), uneven(context, name);
                       barrier(context.world);
                     });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->kind(), kind == throws ? ErrorKind::lost_rank : ErrorKind::mismatch);
        EXPECT_EQ(error->context().failed_rank, culprit) << error->what();
      }
}

TEST(AllToAllV, ARankThatHangsIsNamedAndOneThatIsLateIsNot) {
  const auto program = [](RankContext& context) { uneven(context, "pairwise"); };
  const auto late = FaultPlan{1, 0, FaultKind::delays}, hangs = FaultPlan{1, 0, FaultKind::hangs};
  EXPECT_FALSE(error_of({.ranks = 3, .timeout_s = 10, .fault = late}, program));
  const auto error = error_of({.ranks = 3, .timeout_s = 0.5, .fault = hangs}, program);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::timeout);
  EXPECT_EQ(error->context().failed_rank, 1);
}

}  // namespace
}  // namespace lockstep
