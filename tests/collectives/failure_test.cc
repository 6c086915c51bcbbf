// A failing, absent or disagreeing rank gives all other ranks an error that names it, within a
// bounded time.
#include <gtest/gtest.h>

#include <chrono>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/operations/split.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

// Runs `body` on the ranks; returns the exceptions of each rank and of launch().
struct Outcome {
  std::vector<std::optional<Error>> by_rank;
  std::optional<Error> launched;
  double seconds = 0;
};

Outcome run(int ranks, const std::function<void(RankContext&)>& body, double timeout_s = 10,
            std::optional<FaultPlan> fault = {}) {
  Outcome outcome;
  outcome.by_rank.resize(static_cast<std::size_t>(ranks));
  const auto start = std::chrono::steady_clock::now();
  try {
    launch({.ranks = ranks, .timeout_s = timeout_s, .trace = false, .fault = fault},
           [&](RankContext& context) {
             const int rank = context.world.rank();
             try {
               body(context);
             } catch (const Error& error) {
               outcome.by_rank[rank] = error;
               throw;
             }
           });
  } catch (const Error& error) {
    outcome.launched = error;
  } catch (const std::exception&) {
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

void ring_of(RankContext& context, Count count = 1000, ReduceOp op = ReduceOp::sum) {
  std::vector<float> data(static_cast<std::size_t>(count), 1);
  all_reduce(context.world, host_slice(std::span(data)), op);
}

TEST(Failure, OfMemoryNamesRankOperationAndSize) {
  const Outcome outcome = run(3, [](RankContext& context) {
    ring_of(context);
    constexpr Count more_than_there_is = Count{1} << 60;
    if (context.world.rank() == 1)
      const Memory memory(none_device(), &context.ledger, MemoryUse::activations,
                          more_than_there_is);
    ring_of(context);
  });
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::bad_input);
  EXPECT_EQ(outcome.launched->context().failed_rank, 1);
  EXPECT_NE(outcome.launched->context().operation.find("after all_reduce/"), std::string::npos)
      << outcome.launched->what();
  EXPECT_EQ(outcome.launched->message(),
            "out of memory: 1152921504606846976 bytes of activations are too many");
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(outcome.by_rank[rank]) << "rank " << rank << " went on";
    EXPECT_EQ(outcome.by_rank[rank]->context().failed_rank, 1);
  }
}

TEST(Failure, EveryRankNamesTheOneThatThrew) {
  const Outcome outcome = run(4, [](RankContext& context) {
    ring_of(context);
    if (context.world.rank() == 2) throw std::runtime_error("disk on fire");
    ring_of(context);
  });
  EXPECT_LT(outcome.seconds, 2);
  for (const int rank : {0, 1, 3}) {
    ASSERT_TRUE(outcome.by_rank[rank]) << "rank " << rank << " went on";
    const Error& error = *outcome.by_rank[rank];
    EXPECT_EQ(error.kind(), ErrorKind::lost_rank);
    EXPECT_EQ(error.context().failed_rank, 2);
    EXPECT_EQ(error.context().rank, rank);
    // A rank may learn of it while it is still in the previous operation.
    EXPECT_TRUE(error.context().sequence == 0 || error.context().sequence == 1);
    EXPECT_NE(std::string(error.what()).find("disk on fire"), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_status(), 4);
  }
}

TEST(Failure, RankThatEndsEarlyIsNamed) {
  const Outcome outcome = run(3, [](RankContext& context) {
    if (context.world.rank() != 1) ring_of(context);
  });
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::lost_rank);
  EXPECT_EQ(outcome.launched->context().failed_rank, 1);
  EXPECT_LT(outcome.seconds, 3);
}

TEST(Failure, AbsentRankIsNamedAtTheDeadline) {
  const Outcome outcome = run(
      4, [](RankContext& context) { ring_of(context); }, 0.5,
      FaultPlan{.rank = 3, .operation = 0, .kind = FaultKind::hangs});
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::timeout);
  EXPECT_EQ(outcome.launched->context().failed_rank, 3);
  EXPECT_EQ(outcome.launched->exit_status(), 4);
  EXPECT_GE(outcome.seconds, 0.5);
  EXPECT_LT(outcome.seconds, 2);
}

TEST(Failure, LateRankDoesNoHarm) {
  const Outcome outcome = run(
      3, [](RankContext& context) { ring_of(context); }, 5,
      FaultPlan{.rank = 1, .operation = 0, .kind = FaultKind::delays});
  EXPECT_FALSE(outcome.launched);
  EXPECT_GE(outcome.seconds, 0.1);
}

struct Disagreement {
  std::string name;
  FaultKind kind;
};
class Mismatch : public testing::TestWithParam<Disagreement> {};

// Detected from messages or the board, long before the deadline, at every position of the ring.
TEST_P(Mismatch, IsFoundAtOnce) {
  for (const int ranks : {2, 3, 5}) {
    for (int culprit = 0; culprit < ranks; ++culprit) {
      const Outcome outcome = run(
          ranks,
          [](RankContext& context) {
            ring_of(context);
            std::vector<float> data(10);
            broadcast(context.world, host_slice(std::span(data)), 0);
            ring_of(context);
          },
          30, FaultPlan{.rank = culprit, .operation = 1, .kind = GetParam().kind});
      ASSERT_TRUE(outcome.launched) << ranks << " ranks, culprit " << culprit;
      EXPECT_EQ(outcome.launched->kind(), ErrorKind::mismatch) << outcome.launched->what();
      EXPECT_FALSE(outcome.launched->context().expected.empty());
      EXPECT_FALSE(outcome.launched->context().got.empty());
      EXPECT_NE(outcome.launched->context().expected, outcome.launched->context().got);
      EXPECT_EQ(outcome.launched->exit_status(), 1);
      EXPECT_LT(outcome.seconds, 2) << outcome.launched->what();
      // With two ranks nobody can tell which one is wrong; with more, it is the one that disagrees.
      EXPECT_EQ(outcome.launched->context().failed_rank, ranks == 2 ? -1 : culprit)
          << outcome.launched->what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Mismatch,
                         testing::Values(Disagreement{"count", FaultKind::count},
                                         Disagreement{"dtype", FaultKind::dtype},
                                         Disagreement{"op", FaultKind::op},
                                         Disagreement{"root", FaultKind::root},
                                         Disagreement{"order", FaultKind::order},
                                         Disagreement{"skip", FaultKind::skips}),
                         [](const auto& test_info) { return test_info.param.name; });

// No message ever arrives: two ranks with two roots both only send. The board shows the mismatch.
TEST(Failure, TwoRootsAreFoundWithoutAMessage) {
  const Outcome outcome = run(
      2,
      [](RankContext& context) {
        std::vector<float> data(10);
        broadcast(context.world, host_slice(std::span(data)), context.world.rank());
      },
      30);
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::mismatch);
  EXPECT_LT(outcome.seconds, 2);
}

// One of two ranks leaves out a message of a channel whose messages both number.
TEST(Failure, SkippedMessageIsFoundAtTheNextOne) {
  for (const int culprit : {0, 1}) {
    const Outcome outcome = run(2, [&](RankContext& context) {
      Communicator& world = context.world;
      world.set_label("activations");
      for (int number = 0; number < 4; ++number) {
        float data = 1;
        const Slice slice = host_slice(std::span(&data, 1));
        if (number == 2 && world.rank() == culprit) continue;
        if (world.rank() == 0) world.isend(slice, 1, number)->wait();
        if (world.rank() == 1) world.recv(slice, 0, number);
      }
    });
    ASSERT_TRUE(outcome.launched) << "culprit " << culprit;
    EXPECT_EQ(outcome.launched->kind(), ErrorKind::mismatch) << outcome.launched->what();
    EXPECT_EQ(outcome.launched->context().failed_rank, culprit) << outcome.launched->what();
    for (const char* part : {"message 2 of activations", "message 3 of activations"})
      EXPECT_NE(std::string(outcome.launched->what()).find(part), std::string::npos)
          << outcome.launched->what();
  }
}

TEST(Failure, TwoRanksThatDisagreeAreBothNamed) {
  const Outcome outcome = run(2, [](RankContext& context) {
    if (context.world.rank() == 0) barrier(context.world);
    ring_of(context);
  });
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->context().failed_rank, -1);
  const std::string_view said = outcome.launched->what();
  for (const char* part : {"disagree: rank", "barrier", "all_reduce"})
    EXPECT_NE(said.find(part), said.npos) << said;
}

TEST(Failure, ErrorsOfAGroupNameWorldRanksAndTheGroup) {
  const Outcome outcome = run(
      6,
      [](RankContext& context) {
        const auto group = split(context.world, context.world.rank() % 2, context.world.rank());
        std::vector<float> data(group->rank() == 1 && context.world.rank() == 2 ? 4 : 5);
        all_reduce(*group, host_slice(std::span(data)));
      },
      10);
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->context().failed_rank, 2) << outcome.launched->what();
  EXPECT_EQ(outcome.launched->context().size, 6);
  EXPECT_NE(outcome.launched->context().operation.find("among ranks 0, 2, 4"), std::string::npos)
      << outcome.launched->what();
}

TEST(Failure, OtherOperationAndSkippedCallAreFound) {
  const auto skipping = [](RankContext& context) {
    if (context.world.rank() != 1) barrier(context.world);
    ring_of(context);
  };
  const Outcome outcome = run(3, skipping, 30);
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::mismatch);
  EXPECT_LT(outcome.seconds, 2);
}

TEST(Failure, MessageOfAnotherSizeIsFound) {
  const Outcome outcome = run(2, [](RankContext& context) {
    std::vector<float> data(context.world.rank() == 0 ? 4 : 5);
    if (context.world.rank() == 0) context.world.send(host_slice(std::span(data)), 1);
    if (context.world.rank() == 1) context.world.recv(host_slice(std::span(data)), 0);
  });
  ASSERT_TRUE(outcome.launched);
  EXPECT_EQ(outcome.launched->kind(), ErrorKind::mismatch);
}

TEST(Fault, TextIsCheckedAtTheDoor) {
  const FaultPlan plan = parse_fault("rank=1,op=7,kind=throw");
  EXPECT_EQ(plan.rank, 1);
  EXPECT_EQ(plan.operation, 7);
  EXPECT_EQ(plan.kind, FaultKind::throws);
  for (const char* bad : {"", "rank=1", "rank=x,kind=throw", "kind=explode", "rang=1,kind=throw",
                          "rank=-1,kind=hang", "kind", "kind=hang,kind=throw"})
    EXPECT_THROW(parse_fault(bad), Error) << bad;
}

TEST(Fault, ThatNeverStrikesIsRefused) {
  const auto one_sum = [](RankContext& context) { ring_of(context); };
  const Outcome late = run(2, one_sum, 10, FaultPlan{.rank = 1, .operation = 1});
  ASSERT_TRUE(late.launched);
  EXPECT_EQ(late.launched->kind(), ErrorKind::bad_input);
  EXPECT_NE(std::string(late.launched->what()).find("made only 1 operations"), std::string::npos);
  const Outcome nan = run(
      2, [](RankContext& context) { barrier(context.world); }, 10,
      FaultPlan{.rank = 1, .operation = 0, .kind = FaultKind::nan});
  ASSERT_TRUE(nan.launched);
  EXPECT_EQ(nan.launched->kind(), ErrorKind::bad_input);
  const Outcome alone = run(1, one_sum, 10, FaultPlan{.operation = 0, .kind = FaultKind::count});
  ASSERT_TRUE(alone.launched);
  EXPECT_EQ(alone.launched->kind(), ErrorKind::bad_input);
}

}  // namespace
}  // namespace lockstep
