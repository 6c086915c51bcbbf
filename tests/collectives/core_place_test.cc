// A waiting rank leaves the core of the rank that it waits for.
#include "collectives/transport/threads/core_place.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

class CorePlaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    allowed_ = before_;
    if (CPU_COUNT(&allowed_) < 2) GTEST_SKIP() << "one core: nowhere to go";
    if (CPU_COUNT(&allowed_) > 2) keep_two();
    for (int core = 0; cores_ < 2; ++core)
      if (CPU_ISSET(core, &allowed_)) core_[cores_++] = core;
  }
  void TearDown() override { sched_setaffinity(0, sizeof before_, &before_); }

  // Limits ranks 0 and 1 to the first two allowed cores, their homes.
  void keep_two() {
    cpu_set_t two;
    CPU_ZERO(&two);
    for (int core = 0; CPU_COUNT(&two) < 2; ++core)
      if (CPU_ISSET(core, &allowed_)) CPU_SET(core, &two);
    allowed_ = two;
    ASSERT_EQ(sched_setaffinity(0, sizeof allowed_, &allowed_), 0);
  }
  // Moves this thread to the rank's core without pinning it.
  void go_to(int rank) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_[rank], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_EQ(sched_setaffinity(0, sizeof allowed_, &allowed_), 0);
  }
  // Whether rank 1 leaves the core of rank `begin` while it waits for rank 0. Tries again if the
  // system has moved it in between.
  bool parts(int begin) {
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<CorePlace> place(2);
      go_to(begin);
      place[0].note();
      place[1].part_from(place[0], 1);
      if (sched_getcpu() == core_[1]) return true;
    }
    return false;
  }

  cpu_set_t before_{}, allowed_{};
  int core_[2] = {}, cores_ = 0;
};

TEST_F(CorePlaceTest, WhoWaitsGoesToItsOwnCoreAndStaysFree) {
  EXPECT_TRUE(parts(0));
  cpu_set_t now;
  ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
  EXPECT_TRUE(CPU_EQUAL(&now, &allowed_));
}

TEST_F(CorePlaceTest, WithManyRanksEachGoesHome) {
  for (const int rank : {0, 1, 2, 3}) {
    const int home = core_[rank % 2], away = 1 - rank % 2;
    bool came_home = false;
    for (int attempt = 0; attempt < 100 && !came_home; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<CorePlace> place(1);
      go_to(away);
      place[0].go_home(rank);
      came_home = sched_getcpu() == home;
    }
    EXPECT_TRUE(came_home) << rank;
  }
}

// Ranks do not move back and forth if other programs also need the cores.
TEST_F(CorePlaceTest, MovesSeldom) {
  int moves = 0;
  constexpr int attempts = 1000;
  std::vector<CorePlace> place(2);
  const auto begin = std::chrono::steady_clock::now();
  for (int attempt = 0; attempt < attempts; ++attempt) {
    go_to(0);
    place[0].note();
    place[1].part_from(place[0], 1);
    moves += sched_getcpu() == core_[1];
  }
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  // Allows a few moves by the system.
  EXPECT_LE(moves, passed.count() / 0.2 + 1 + attempts / 20);
  EXPECT_GT(moves, 0);
}

}  // namespace
}  // namespace lockstep
