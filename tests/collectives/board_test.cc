// The board without a transport: which rank it blames, and for which operation.
#include "collectives/transport/failure/board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

namespace lockstep {
namespace {

// Two ranks may continue for a while after an operation in which they differed. The error names that
// operation, not the current one.
TEST(Board, AMismatchFoundLaterIsOfTheOperationInWhichItHappened) {
  std::vector<BoardSlot> slots(3);
  std::vector<RankWaits> waits(3);
  AbortNotice notice{};
  Board board(slots.data(), {&notice, waits}, {0, 1, 2}, 1, "test");
  const auto signature = [](std::int64_t sequence, Count count) {
    return Signature{.sequence = sequence, .count = count, .operation = Operation::broadcast};
  };
  for (int rank = 0; rank < 3; ++rank) board.enter(rank, signature(4, rank == 1 ? 11 : 10));
  for (const int rank : {0, 2}) board.enter(rank, signature(5, 20));
  try {
    board.match(0, 1, {.signature = signature(5, 20), .label = {}}, signature(4, 11));
    FAIL() << "they do not match";
  } catch (const Error& error) {
    EXPECT_EQ(error.context().sequence, 4);
    EXPECT_EQ(error.context().expected, signature(4, 10).text());
    EXPECT_EQ(error.context().got, signature(4, 11).text());
    EXPECT_EQ(error.context().failed_rank, 1);
  }
}

// A rank has waited for long when its peer does its part and ends. The rank finds that part at its next
// check, but only after it has seen the end.
TEST(Board, APeerThatEndsAfterALongWaitIsNotLost) {
  std::vector<BoardSlot> slots(2);
  std::vector<RankWaits> waits(2);
  AbortNotice notice{};
  Board board(slots.data(), {&notice, waits}, {0, 1}, 10, "test");
  const int peers[] = {1};
  int checks = 0;
  const auto pause = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (checks == 3) board.end(1);
  };
  EXPECT_NO_THROW(board.wait(
      0, peers, {}, [&] { return ++checks > 4; }, pause));
  EXPECT_EQ(checks, 5);
  try {
    board.wait(
        0, peers, {}, [] { return false; }, pause);
    FAIL() << "the peer has ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lost_rank);
  }
}

// Three ranks wait for each other, as in a ring of which one process was stopped: its heartbeat is
// old. Errors name world ranks.
class Ring : public testing::Test {
 protected:
  int culprit_of_timeout() {
    try {
      const int peers[] = {1};
      board.wait(
          0, peers, {}, [] { return false; }, [] {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      said = error.what();
      return error.context().failed_rank;
    }
    return -2;
  }
  RankWaits::Entry& first_wait(int world_rank) {
    return waits[static_cast<std::size_t>(world_rank)].entries[0];
  }

  void looks_for_ever(int world_rank) {
    first_wait(world_rank).heartbeat_us = std::numeric_limits<std::int64_t>::max();
  }

  static constexpr double timeout_s = 0.02;
  std::vector<BoardSlot> slots = std::vector<BoardSlot>(3);
  std::vector<RankWaits> waits = std::vector<RankWaits>(8);
  AbortNotice notice{};
  Board board{slots.data(), {&notice, waits}, {2, 4, 6}, timeout_s, "test"};
  std::string said;
};

TEST_F(Ring, NamesTheRankWhoseHeartbeatHasStopped) {
  const Board::Waiting one(board, 1, 2, {}), two(board, 2, 0, {});
  for (const int stopped : {4, 6}) {
    looks_for_ever(10 - stopped);
    first_wait(stopped).heartbeat_us = 0;
    EXPECT_EQ(culprit_of_timeout(), stopped) << said;
  }
  EXPECT_NE(said.find("rank 2 of 8"), std::string::npos) << said;
  EXPECT_NE(said.find("among ranks 2, 4, 6"), std::string::npos) << said;
}

TEST_F(Ring, NamesTheRankThatWasStoppedBeforeItLooked) {
  const Board::Waiting one(board, 1, 2, {}), two(board, 2, 0, {});
  looks_for_ever(4);
  EXPECT_EQ(culprit_of_timeout(), 6) << said;
}

TEST_F(Ring, NamesNobodyIfAllAreAlive) {
  const Board::Waiting one(board, 1, 2, {}), two(board, 2, 0, {});
  for (const int rank : {4, 6}) looks_for_ever(rank);
  EXPECT_EQ(culprit_of_timeout(), -1) << said;
  EXPECT_NE(said.find("wait for each other"), std::string::npos) << said;
}

TEST_F(Ring, FollowsWaitsIntoOtherGroups) {
  std::vector<BoardSlot> others(2);
  const Board elsewhere(others.data(), {&notice, waits}, {4, 7}, timeout_s, "test");
  const Board::Waiting one(elsewhere, 0, 1, {});
  looks_for_ever(4);
  EXPECT_EQ(culprit_of_timeout(), 7) << said;
}

}  // namespace
}  // namespace lockstep
