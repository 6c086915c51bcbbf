#include "collectives/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "collectives/stream.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::on_ranks;
using testing::ElementsAre;

TEST(Turns, AlternateUntilOneIsDone) {
  on_ranks(1, [](RankContext& context) {
    Turns turns(context.world);
    EXPECT_FALSE(turns.are_two());
    turns.pass_on();  // nobody to pass it to
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<std::string> steps;
      const auto work = [&](const std::string& name, int own, int number) {
        for (int step = 0; step < number; ++step) {
          EXPECT_EQ(turns.current(), own);
          steps.push_back(name + std::to_string(step));
          turns.pass_on();
        }
      };
      std::vector<int> heard;
      turns.take([&] { work("a", 0, 2); }, [&] { work("b", 1, 4); },
                 [&](int of, bool begins) { heard.push_back(begins ? 1 + of : -1 - of); });
      EXPECT_THAT(steps, ElementsAre("a0", "b0", "a1", "b1", "b2", "b3"));
      // The first one ends in its third turn; the second one's third turn is its last.
      EXPECT_THAT(heard, ElementsAre(1, -1, 2, -2, 1, -1, 2, -2, 1, -1, 2, -2));
      EXPECT_FALSE(turns.are_two());
      EXPECT_EQ(turns.current(), 0);
    }
  });
}

TEST(Turns, TheSecondBeginsWithoutBeingPassedATurn) {
  on_ranks(1, [](RankContext& context) {
    Turns turns(context.world);
    std::string steps;
    turns.take([&] { steps += "a"; },
               [&] {
                 steps += "b";
                 EXPECT_FALSE(turns.are_two());
                 turns.pass_on();
                 steps += "c";
               },
               {});
    EXPECT_EQ(steps, "abc");
  });
}

// Says that it has been destroyed.
struct Guard {
  bool& destroyed;
  ~Guard() { destroyed = true; }
};

TEST(Turns, AnErrorOfOneEndsTheOther) {
  on_ranks(1, [](RankContext& context) {
    Turns turns(context.world);
    for (const bool first_throws : {true, false}) {
      bool other_ended = false, other_went_on = false;
      const auto bad = [&] {
        turns.pass_on();
        throw std::runtime_error("on purpose");
      };
      const auto other = [&] {
        const Guard guard{other_ended};
        turns.pass_on();
        turns.pass_on();
        other_went_on = true;
      };
      const std::function<void()> first = first_throws ? std::function<void()>(bad) : other,
                                  second = first_throws ? std::function<void()>(other) : bad;
      EXPECT_THROW(turns.take(first, second, {}), std::runtime_error);
      EXPECT_TRUE(other_ended);
      EXPECT_FALSE(other_went_on);
    }
    bool begun = false;
    EXPECT_THROW(turns.take([] { throw std::runtime_error("at once"); }, [&] { begun = true; }, {}),
                 std::runtime_error);
    EXPECT_FALSE(begun);
    EXPECT_THROW(turns.take([] {}, [] { throw std::runtime_error("alone"); }, {}),
                 std::runtime_error);
    turns.take([&] { turns.pass_on(); }, [&] { begun = true; }, {});
    EXPECT_TRUE(begun);
  });
}

// A turn begins at the time at which the one before it ended.
TEST(Turns, FollowEachOtherInVirtualTime) {
  launch({.ranks = 1, .fault = {}, .clock = Clock::unit}, [](RankContext& context) {
    Transport& clock = context.world.transport();
    Turns turns(context.world);
    std::vector<double> times;
    const auto work = [&](double seconds) {
      for (int step = 0; step < 2; ++step) {
        clock.advance(seconds);
        times.push_back(clock.now_seconds());
        turns.pass_on();
      }
    };
    turns.take([&] { work(3); }, [&] { work(5); }, {});
    EXPECT_THAT(times, ElementsAre(3, 8, 11, 16));
    EXPECT_EQ(clock.now_seconds(), 16);
  });
}

}  // namespace
}  // namespace lockstep
