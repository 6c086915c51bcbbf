// Schedules as data: their closed forms, orders, invalid ones, and their text form.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/pipeline/program/program.h"
#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/pipeline/schedules/sharding.h"
#include "parallel/pipeline/schedules/text.h"
#include "parallel/pipeline/simulator/draw.h"
#include "parallel/pipeline/simulator/figures.h"
#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<PassTimes> durations = {
    {.forward = 1, .input_gradient = 1, .weight_gradient = 1},
    {.forward = 2, .input_gradient = 2, .weight_gradient = 1},
    {.forward = 3, .input_gradient = 4, .weight_gradient = 2},
    {.forward = 1, .input_gradient = 1, .weight_gradient = 2},
    {.forward = 2, .input_gradient = Rational(1, 2), .weight_gradient = 1},
    {.forward = Rational(3, 2),
     .input_gradient = Rational(7, 3),
     .weight_gradient = Rational(1, 5)}};

bool fits(const ScheduleEntry& entry, const PipelineShape& shape) {
  try {
    complete(entry, shape);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return false;
  }
}

// Calls use(shape) for all shapes that the entry accepts.
template <typename Use>
int for_shapes(const ScheduleEntry& entry, Use use) {
  int shapes = 0;
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= (LOCKSTEP_THOROUGH ? 32 : 8); ++m)
      for (int v = 1; v <= 4; ++v) {
        const PipelineShape shape{.ranks = p, .micro_batches = m, .virtual_stages = v};
        if (!fits(entry, shape)) continue;
        ++shapes;
        use(shape);
      }
  return shapes;
}

std::string text_of_rank(const Schedule& schedule, int rank) {
  std::string text;
  for (const Action& action : schedule.by_rank[static_cast<std::size_t>(rank)])
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", static_cast<char>(action.pass),
                        action.micro_batch);
  return text;
}

class EverySchedule : public testing::TestWithParam<std::string_view> {
 protected:
  const ScheduleEntry& entry = find_schedule(GetParam());
};

TEST_P(EverySchedule, CanBeRun) {
  EXPECT_GE(for_shapes(entry,
                       [&](const PipelineShape& x) {
                         const Schedule schedule = make_schedule(entry, x);
                         ASSERT_NO_THROW(check(schedule)) << x.ranks << " " << x.micro_batches;
                         EXPECT_EQ(schedule.ranks(), x.ranks);
                         EXPECT_EQ(schedule.stages, x.stages());
                         EXPECT_EQ(schedule.micro_batches, x.micro_batches);
                       }),
            LOCKSTEP_THOROUGH ? 100 : 10);
}

TEST_P(EverySchedule, TakesAsLongAsItsClosedForm) {
  int compared = 0;
  for (const PassTimes& times : durations)
    for_shapes(entry, [&](const PipelineShape& x) {
      const Timeline timeline = simulate(make_schedule(entry, x), times);
      // Every rank does all the work of its stages.
      for (int rank = 0; rank < x.ranks; ++rank)
        EXPECT_EQ(timeline.busy(rank), x.micro_batches * times.total());
      const auto makespan = entry.makespan(x, times);
      if (!makespan) return;
      ++compared;
      EXPECT_EQ(timeline.makespan(), *makespan) << fmt::format(
          "p {} m {} v {} times {} {} {}", x.ranks, x.micro_batches, x.virtual_stages,
          text_of(times.forward), text_of(times.input_gradient), text_of(times.weight_gradient));
    });
  EXPECT_GE(compared, LOCKSTEP_THOROUGH ? 100 : 10);
}

TEST_P(EverySchedule, HoldsAsManyMicroBatchesAsItsClosedForm) {
  int compared = 0;
  for (const PassTimes& times : durations)
    for_shapes(entry, [&](const PipelineShape& x) {
      const Timeline timeline = simulate(make_schedule(entry, x), times);
      for (int rank = 0; rank < x.ranks; ++rank) {
        const auto in_flight = entry.in_flight(x, rank);
        if (!in_flight) continue;
        ++compared;
        EXPECT_EQ(timeline.ranks[static_cast<std::size_t>(rank)].in_flight, *in_flight)
            << fmt::format("rank {} of {}, m {} v {}", rank, x.ranks, x.micro_batches,
                           x.virtual_stages);
      }
    });
  EXPECT_GE(compared, LOCKSTEP_THOROUGH ? 400 : 40);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule, testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const ScheduleEntry& entry : schedules())
                             names.push_back(entry.name);
                           return names;
                         }()),
                         [](const auto& entry) {
                           std::string name(entry.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Figures for p = 4, m = 8, tF = tI = tW = 1, computed independently.
TEST(Schedules, GoldenFigures) {
  const std::map<std::string_view, std::pair<Rational, int>> makespans = {
      {"naive", {96, 1}},
      {"gpipe", {33, 1}},
      {"gpipe-lifo", {33, 1}},
      {"1f1b", {33, 1}},
      {"zb-h1", {27, 1}},
      {"zb-h2", {27, 1}},
      {"zb-v", {Rational(51, 2), 2}},
      {"dualpipe-v", {27, 2}}};
  for (const auto& [name, expected] : makespans) {
    const PipelineShape shape{.ranks = 4, .micro_batches = 8, .virtual_stages = expected.second};
    EXPECT_EQ(simulate(make_schedule(find_schedule(name), shape), {}).makespan(), expected.first)
        << name;
  }
  for (const auto& [v, makespan] : {std::pair{2, Rational(57, 2)}, std::pair{4, Rational(105, 4)}})
    for (const std::string_view name : {"interleaved", "interleaved-rounds", "looped-bfs"}) {
      const PipelineShape shape{.ranks = 4, .micro_batches = 8, .virtual_stages = v};
      EXPECT_EQ(simulate(make_schedule(find_schedule(name), shape), {}).makespan(), makespan);
    }
  const Timeline timeline =
      simulate(make_schedule(find_schedule("1f1b"), {.ranks = 4, .micro_batches = 8}), {});
  EXPECT_EQ(timeline.bubble_fraction(), Rational(3, 11));
  EXPECT_EQ(timeline.bubble_overhead(), Rational(3, 8));
  EXPECT_EQ(timeline.idle(2), Rational(9));
}

// In these schedules no rank waits between its first and its last action.
TEST(Schedules, ZeroBubbleInsideEveryRank) {
  for (const std::string_view name : {"zb-h2", "zb-v"})
    for (int p = 2; p <= 8; ++p)
      for (int m = 2 * p - 1; m <= 24; ++m) {
        const ScheduleEntry& entry = find_schedule(name);
        const PipelineShape shape =
            complete(entry, {.ranks = p, .micro_batches = m, .virtual_stages = 0});
        const Timeline timeline = simulate(make_schedule(entry, shape), {});
        for (int rank = 0; rank < p; ++rank)
          EXPECT_EQ(timeline.inner_idle(rank), Rational(0)) << name;
      }
  for (const PassTimes& times : durations) {
    if (times.forward + times.input_gradient < 2 * times.weight_gradient) continue;
    const Timeline timeline =
        simulate(make_schedule(find_schedule("zb-h2"), {.ranks = 5, .micro_batches = 12}), times);
    EXPECT_EQ(timeline.inner_idle(0),
              4 * (times.forward + times.input_gradient - 2 * times.weight_gradient));
  }
}

TEST(Schedules, HoldUnfinishedWeightGradients) {
  for (int p = 2; p <= 8; ++p)
    for (int m = 2 * p; m <= 24; ++m) {
      const auto unfinished = [&](std::string_view name, int rank) {
        const ScheduleEntry& entry = find_schedule(name);
        const PipelineShape shape =
            complete(entry, {.ranks = p, .micro_batches = m, .virtual_stages = 0});
        return simulate(make_schedule(entry, shape), {})
            .ranks[static_cast<std::size_t>(rank)]
            .unfinished;
      };
      for (const int rank : {0, p / 2, p - 1}) {
        EXPECT_EQ(unfinished("zb-h1", rank), p);
        EXPECT_EQ(unfinished("zb-h2", rank), 2 * p - 1);
        EXPECT_EQ(unfinished("zb-v", rank), 2 * p);
        EXPECT_EQ(unfinished("dualpipe-v", rank), 2 * p + 1);
      }
    }
}

TEST(Schedules, OrdersAreThoseOfTheLiterature) {
  const auto text = [](std::string_view name, PipelineShape shape, int rank) {
    return text_of_rank(make_schedule(find_schedule(name), shape), rank);
  };
  EXPECT_EQ(text("zb-h1", {.ranks = 4, .micro_batches = 8}, 2),
            "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7");
  EXPECT_EQ(text("zb-h2", {.ranks = 4, .micro_batches = 8}, 3),
            "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7");
  EXPECT_EQ(text("1f1b", {.ranks = 4, .micro_batches = 5}, 1), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text("gpipe-lifo", {.ranks = 2, .micro_batches = 3}, 1), "F0 F1 F2 B2 B1 B0");
  EXPECT_EQ(csv_of(make_schedule(find_schedule("interleaved"),
                                 {.ranks = 2, .micro_batches = 4, .virtual_stages = 2})),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

// Gradients are then summed as without a pipeline, bit for bit.
TEST(Schedules, BackwardPassesAscend) {
  for (const ScheduleEntry& entry : schedules()) {
    if (entry.name == "gpipe-lifo") continue;
    for (int p = 2; p <= 8; ++p)
      for (int m = 2 * p; m <= 5 * p; m += p) {
        const PipelineShape shape =
            complete(entry, {.ranks = p, .micro_batches = m, .virtual_stages = 0});
        for (const auto& actions : make_schedule(entry, shape).by_rank) {
          std::map<int, int> next;
          for (const Action& action : actions) {
            if (action.pass == Pass::forward || action.pass == Pass::input_gradient) continue;
            EXPECT_EQ(action.micro_batch, next[action.stage]++) << entry.name;
          }
        }
      }
  }
}

// Half a million actions: an algorithm that is not linear would not finish here.
TEST(Schedules, OfManyRanksAndMicroBatches) {
  const ScheduleEntry& entry = find_schedule("interleaved");
  constexpr int ranks = LOCKSTEP_THOROUGH ? 64 : 8;
  const PipelineShape shape{.ranks = ranks, .micro_batches = 8 * ranks, .virtual_stages = 8};
  const Schedule schedule = make_schedule(entry, shape);
  check(schedule);
  EXPECT_EQ(simulate(schedule, {}).makespan(), *entry.makespan(shape, {}));
}

// An algorithm that is quadratic in the ranks would not finish here.
TEST(Schedules, OfManyRanks) {
  constexpr int ranks = LOCKSTEP_THOROUGH ? 400'000 : 50'000;
  const PipelineShape shape{.ranks = ranks, .micro_batches = 2};
  for (const std::string_view name : {"1f1b", "gpipe"}) {
    const ScheduleEntry& entry = find_schedule(name);
    const Schedule schedule = make_schedule(entry, shape);
    const Timeline timeline = simulate(schedule, {});
    EXPECT_EQ(timeline.ranks[7].in_flight, 2) << name;
    EXPECT_EQ(timeline.makespan(), Rational((2 + ranks - 1) * 3)) << name;
  }
}

TEST(Drawing, LeavesOutMiddleRanksOfMany) {
  const auto text = [](int ranks) {
    return text_by_rank(ranks, [](int rank) { return fmt::format("{} ", rank); });
  };
  EXPECT_EQ(std::ranges::count(text(100), ' '), 100);
  EXPECT_THAT(text(101), HasSubstr("48 49 ... 1 more ranks\n51 52 "));
  EXPECT_THAT(text(1'000'000), HasSubstr("49 ... 999900 more ranks\n999950 "));
}

TEST(Schedules, ShapesThatDoNotFitAreNamed) {
  const auto message = [](std::string_view name, PipelineShape shape) -> std::string {
    try {
      make_schedule(find_schedule(name), shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("interleaved", {.ranks = 4, .micro_batches = 6, .virtual_stages = 2}),
              HasSubstr("ranks <= group <= micro-batches"));
  EXPECT_THAT(message("interleaved-rounds", {.ranks = 4, .micro_batches = 9, .virtual_stages = 2}),
              HasSubstr("divisible by the rounds"));
  EXPECT_THAT(message("dualpipe-v", {.ranks = 4, .micro_batches = 7, .virtual_stages = 2}),
              HasSubstr("twice as many micro-batches"));
  EXPECT_THAT(message("1f1b", {.ranks = 4, .micro_batches = 8, .virtual_stages = 2}),
              HasSubstr("with 2 stages on every rank"));
  EXPECT_THAT(message("gpipe", {.ranks = 4, .micro_batches = 8, .group = 4}),
              HasSubstr("only interleaved"));
  EXPECT_THAT(message("gpipe", {.ranks = 0, .micro_batches = 8}), HasSubstr("0 ranks"));
  EXPECT_THAT(message("gpipe", {.ranks = 2, .micro_batches = 0}), HasSubstr("0 micro-batches"));
  EXPECT_THAT(message("gpipe", {.ranks = 100'000, .micro_batches = 1'000}),
              HasSubstr("50 million"));
  EXPECT_THAT(message("zb-v", {.ranks = 100'000, .micro_batches = 1, .virtual_stages = 2}),
              HasSubstr("at most 3500 ranks"));
  EXPECT_THROW(find_schedule("2f2b"), Error);
}

// Shapes that the rule of groups excludes. With a small last group they are true deadlocks, with any
// amount of buffering.
TEST(Deadlock, IsProvedAndItsCycleNamed) {
  const std::vector<std::pair<PipelineShape, std::vector<int>>> cases = {
      {{.ranks = 4, .virtual_stages = 3, .group = 4}, {5, 9, 13}},
      {{.ranks = 6, .virtual_stages = 2, .group = 6}, {8, 9, 14, 15, 20, 21}}};
  for (const auto& [shape, micro_batches] : cases)
    for (const int m : micro_batches) {
      PipelineShape x = shape;
      x.micro_batches = m;
      const Schedule schedule = find_schedule("interleaved").make(x);
      try {
        check(schedule);
        FAIL() << "no deadlock of " << x.ranks << " ranks with " << m;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("the schedule deadlocks: rank "));
      }
      EXPECT_THROW(simulate(schedule, {}), Error);
      // Each rank of the cycle waits for an action that the next one has not reached.
      const std::vector<Wait> cycle =
          play(schedule, [](int, std::span<const Action>, std::int64_t) { return 0; });
      ASSERT_THAT(cycle, Not(IsEmpty()));
      for (std::size_t i = 0; i < cycle.size(); ++i) {
        const Wait& wait = cycle[i];
        const Wait& next = cycle[(i + 1) % cycle.size()];
        EXPECT_EQ(wait.needed_rank, next.rank);
        const auto& actions = schedule.by_rank[static_cast<std::size_t>(next.rank)];
        const auto place = [&](const Action& action) {
          return std::ranges::find_if(actions, [&](const Action& a) {
            return a.stage == action.stage && a.micro_batch == action.micro_batch &&
                   (a.pass == action.pass);
          });
        };
        EXPECT_LT(place(next.action), place(wait.needed));
      }
    }
}

TEST(Deadlock, IsNamedInWords) {
  const Schedule schedule = schedule_from_csv("0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n", "text");
  try {
    check(schedule);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("0B1 on rank 0, but its forward pass has not run yet"));
  }
  const Schedule waits_in_cycle = schedule_from_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "text");
  try {
    check(waits_in_cycle);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 waits at 0B0 for 1B0 of rank 1, "
                                        "rank 1 waits at 1F1 for 0F1 of rank 0"));
  }
}

TEST(Check, NamesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0F0,0B0\n1F0\n", "no backward pass of stage 1 for micro-batch 0"},
      {"0F0,0B0\n1F0,1I0\n", "no weight gradient of stage 1 for micro-batch 0"},
      {"0F0,0B0\n2F0,2B0\n", "no forward pass of stage 1 for micro-batch 0"},
      {"0F0,0F0,0B0\n", "0F0 on rank 0, but its stage has done that already"},
      {"0F0,0B0,0B0\n", "0B0 on rank 0, but its stage has done that already"},
      {"0F0,0B0,0W0\n", "0W0 on rank 0, but its stage has done that already"},
      {"0F0,0B0\n1F0,1B0,0F1,0B1\n", "0F1 on rank 1, but its stage is on rank 0"},
      {"0B0,0F0\n", "0B0 on rank 0, but its forward pass has not run yet"},
      {"0F0,0W0,0I0\n", "0W0 on rank 0, but its input gradient has not run yet"},
      {"0F0,0UNSHARD,0B0,0RESHARD\n",
       "0F0 on rank 0, but the parameters of its stage are not unsharded"},
      {"0UNSHARD,0F0,0RESHARD,0B0\n",
       "0B0 on rank 0, but the parameters of its stage are not unsharded"},
      {"0UNSHARD,0F0,0B0,0RESHARD\n1F0,1B0\n",
       "1F0 on rank 1, but the parameters of its stage are not unsharded"},
      {"0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD\n",
       "0UNSHARD on rank 0, but its stage is already unsharded"},
      {"0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n",
       "0RESHARD on rank 0, but its stage is not unsharded"},
      {"0UNSHARD,0F0,0B0\n", "leaves stage 0 unsharded; add 0RESHARD on rank 0"},
      {"0UNSHARD,0F0,0B0,0RESHARD\n0UNSHARD,1F0,1B0\n",
       "0UNSHARD on rank 1, but its stage is on rank 0"},
      {"0UNSHARD,1UNSHARD,0F0,0B0\n", "1UNSHARD on rank 0, but its stage computes nothing"},
      {"0F0,0B0,0F1,0REDUCE_GRAD,0B1\n",
       "0REDUCE_GRAD on rank 0, but its stage has the gradients of 1 of 2 micro-batches"},
      {"0F0,0I0,0REDUCE_GRAD,0W0\n",
       "0REDUCE_GRAD on rank 0, but its stage has the gradients of 0 of 1 micro-batches"},
      {"0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n",
       "0REDUCE_GRAD on rank 0, but its stage has done that already"},
      {"0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n",
       "reduces gradients, but not those of stage 1; add 1REDUCE_GRAD on rank 1"}};
  for (const auto& [text, words] : cases) {
    try {
      check(schedule_from_csv(text, "text"));
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
  EXPECT_THROW(check(Schedule{}), Error);
}

TEST(Check, RefusesCollectivesOfAMicroBatchOrInABlock) {
  const auto message = [](int place, const Action& action) -> std::string {
    Schedule schedule = schedule_from_csv("0F0,0B0,0REDUCE_GRAD\n", "text");
    schedule.by_rank[0][static_cast<std::size_t>(place)] = action;
    try {
      check(schedule);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Action reduce{.stage = 0, .pass = Pass::reduce_gradients, .micro_batch = 0};
  EXPECT_THAT(message(2, reduce),
              HasSubstr("0REDUCE_GRAD0 on rank 0, but a collective has no micro-batch"));
  const Action backward{.stage = 0, .pass = Pass::backward, .micro_batch = 0, .with_next = true};
  EXPECT_THAT(message(1, backward),
              HasSubstr("0B0 on rank 0, but its block contains a collective"));
}

TEST(Text, ComesBack) {
  for (const ScheduleEntry& entry : schedules())
    for (const int p : {1, 2, 5}) {
      const PipelineShape shape =
          complete(entry, {.ranks = p, .micro_batches = 2 * p, .virtual_stages = 0});
      const Schedule schedule = make_schedule(entry, shape);
      for (const Schedule& each :
           {schedule, with_gradient_reduction(schedule), with_sharding(schedule)})
        EXPECT_EQ(schedule_from_csv(csv_of(each), "text"), each) << entry.name;
    }
  EXPECT_THAT(csv_of(make_schedule(find_schedule("dualpipe-v"),
                                   {.ranks = 2, .micro_batches = 4, .virtual_stages = 2})),
              HasSubstr("(0F3;3B1)OVERLAP_F_B"));
}

TEST(Text, IsReadAsPyTorchWritesIt) {
  const Schedule schedule = schedule_from_csv(
      "0F0,0SEND_F0,0F1,,0RECV_B0, 0B0 ,0B1\r\n\n,1RECV_F0,1F0,1I0,1W0,1F1,1B1\n", "text");
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(text_of_rank(schedule, 0), "F0 F1 B0 B1");
  EXPECT_EQ(text_of_rank(schedule, 1), "F0 I0 W0 F1 B1");
  for (const std::string text :
       {"0F0,0X0\n", "0F\n", "F0\n", "0F0;0B0\n", "(0F0;0SEND_F0)OVERLAP_F_B\n", "0F99999999999\n",
        "0UNSHARD0\n", "UNSHARD\n", "(0F0;0REDUCE_GRAD)OVERLAP_F_B\n", "0WAIT_F0\n",
        "0WAIT_SEND_F\n", "0WAIT_REDUCE_GRAD0\n", "0WAIT_\n"}) {
    try {
      schedule_from_csv(text, "file.csv");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("file.csv, line 1: '"));
    }
  }
  EXPECT_THROW(schedule_from_csv("\n,,\n", "text"), Error);
}

// PyTorch's lowered order of GPipe: messages, collectives, and a wait for every send and reduction.
constexpr std::string_view lowered_gpipe =
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,"
    "0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n"
    "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,"
    "1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1\n";

TEST(Text, OfPyTorchsLoweredOrderIsReadAndWritten) {
  const Schedule gpipe =
      with_sharding(make_schedule(find_schedule("gpipe"), {.ranks = 2, .micro_batches = 2}));
  EXPECT_EQ(schedule_from_csv(lowered_gpipe, "text"), gpipe);
  EXPECT_EQ(csv_of(deadlock_free(gpipe)), lowered_gpipe);
  EXPECT_EQ(
      schedule_from_csv("0UNSHARD,0WAIT_UNSHARD,0F0,0B0,0RESHARD\n", "text").by_rank[0].size(), 4u);
}

TEST(Text, OfLoweredOrdersComesBackAndHasAWaitForEverySend) {
  const auto count = [](const std::string& text, std::string_view word) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  for (const ScheduleEntry& entry : schedules())
    for (const int p : {1, 3}) {
      const Schedule schedule = with_sharding(make_schedule(
          entry, complete(entry, {.ranks = p, .micro_batches = 2 * p, .virtual_stages = 0})));
      const std::string text = csv_of(deadlock_free(schedule));
      EXPECT_EQ(schedule_from_csv(text, "text"), schedule) << entry.name;
      EXPECT_EQ(count(text, "WAIT_SEND_"), count(text, "RECV_")) << entry.name;
      EXPECT_EQ(2 * count(text, "WAIT_REDUCE_GRAD"), count(text, "REDUCE_GRAD")) << entry.name;
    }
}

// The last rank of its 1F1B counts forward passes from 1.
TEST(Text, OfAFileWithPassesNumberedFromOneIsRenumbered) {
  const auto read = [](const std::string& text) {
    const std::string path = testing::TempDir() + "/numbered_from_one.csv";
    write_file(path, text);
    return read_schedule(path);
  };
  const Schedule one_f_one_b =
      make_schedule(find_schedule("1f1b"), {.ranks = 2, .micro_batches = 3});
  EXPECT_EQ(read("0F0,0F1,,,0B0,0F2,0B1,,0B2\n,1F1,1B0,1F2,1B1,1F3,1B2\n"), one_f_one_b);
  EXPECT_EQ(read("0F1,0F2,0B1,0F3,0B2,0B3\n1F1,1B1,1F2,1B2,1F3,1B3\n"), one_f_one_b);
  EXPECT_EQ(read("0F1,0I1,0W1\n"), schedule_from_csv("0F0,0I0,0W0\n", "text"));
  // A micro-batch that is missing stays missing.
  try {
    check(read("0F0,0F1,0B0,0B1\n1F1,1B0,1B1\n"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1B0 on rank 1, but its forward pass has not run yet"));
  }
}

// PyTorch's looped breadth-first order takes micro-batches backward from the last to the first.
TEST(Text, OfPyTorchsBreadthFirstOrderTakesAsLongAsOurs) {
  for (const int m : {1, 3, 4}) {
    const PipelineShape shape{.ranks = 2, .micro_batches = m, .virtual_stages = 2};
    const Timeline ours = simulate(make_schedule(find_schedule("looped-bfs"), shape), {});
    std::string text;
    for (int rank = 0; rank < 2; ++rank) {
      for (const int stage : {rank, rank + 2})
        for (int i = 0; i < m; ++i) text += fmt::format("{}F{},", stage, i);
      for (const int stage : {rank + 2, rank})
        for (int i = m; i-- > 0;) text += fmt::format("{}B{},", stage, i);
      text += "\n";
    }
    const Schedule schedule = schedule_from_csv(text, "text");
    check(schedule);
    const Timeline theirs = simulate(schedule, {});
    EXPECT_EQ(theirs.makespan(), ours.makespan()) << m;
    EXPECT_EQ(theirs.ranks[0].in_flight, ours.ranks[0].in_flight) << m;
  }
}

TEST(Communication, OneSidedOrdersDeadlockWhereSendsWait) {
  for (const int p : {2, 3, 4, 8})
    for (int m = 1; m <= 11; ++m) {
      const Schedule schedule =
          make_schedule(find_schedule("1f1b"), {.ranks = p, .micro_batches = m});
      const Program program = in_order(schedule);
      EXPECT_THAT(stuck_ranks(program, Sends::go_on), IsEmpty());
      EXPECT_EQ(stuck_ranks(program, Sends::wait_for_receiver).empty(), m < 2) << p << " " << m;
      EXPECT_THAT(stuck_ranks(in_exchanges(schedule), Sends::wait_for_receiver), IsEmpty());
    }
}

TEST(Communication, OfASimulationIsSafeForEverySchedule) {
  for (const ScheduleEntry& entry : schedules())
    for (int p = 2; p <= 8; ++p)
      for (const int m : {2 * p, 3 * p, 4 * p}) {
        const PipelineShape shape =
            complete(entry, {.ranks = p, .micro_batches = m, .virtual_stages = 0});
        // With collectives, which stand between messages and keep their places.
        Schedule schedule = make_schedule(entry, shape);
        if (m == 3 * p) schedule = with_sharding(schedule, 2);
        EXPECT_THAT(stuck_ranks(in_exchanges(schedule), Sends::go_on), IsEmpty()) << entry.name;
        const Program program = deadlock_free(schedule);
        EXPECT_THAT(stuck_ranks(program, Sends::wait_for_receiver), IsEmpty()) << entry.name;
        // Every rank computes in the order of the schedule; every message has both ends.
        std::multiset<std::string> sent, received;
        for (int rank = 0; rank < p; ++rank) {
          std::vector<Action> computed;
          for (const Step& step : program.by_rank[static_cast<std::size_t>(rank)]) {
            const int back = step.action.pass == Pass::forward ? -1 : 1;
            const auto name = [&](int stage, int from, int to) {
              return fmt::format("{} {} {} {} {}", stage, static_cast<char>(step.action.pass),
                                 step.action.micro_batch, from, to);
            };
            if (step.kind == Step::Kind::compute || step.kind == Step::Kind::collective) {
              EXPECT_EQ(step.kind == Step::Kind::compute, is_compute(step.action.pass));
              computed.push_back(step.action);
            }
            if (step.kind == Step::Kind::send)
              sent.insert(name(step.action.stage, rank, step.peer));
            if (step.kind == Step::Kind::receive)
              received.insert(name(step.action.stage + back, step.peer, rank));
          }
          EXPECT_EQ(computed, schedule.by_rank[static_cast<std::size_t>(rank)]);
        }
        EXPECT_EQ(sent, received);
        // V-shaped placements turn around on the last rank without a message.
        const bool is_v = entry.name == "zb-v" || entry.name == "dualpipe-v";
        EXPECT_EQ(std::ssize(sent), 2 * m * (shape.stages() - 1 - (is_v ? 1 : 0)));
      }
}

TEST(Communication, IsWrittenAsPyTorchDoes) {
  const Program program =
      deadlock_free(make_schedule(find_schedule("gpipe"), {.ranks = 2, .micro_batches = 1}));
  std::string text;
  for (const auto& steps : program.by_rank)
    for (const Step& step : steps) text += text_of(step) + " ";
  EXPECT_EQ(text, "0F0 0SEND_F0 0RECV_B0 0B0 1RECV_F0 1F0 1B0 1SEND_B0 ");
}

// If a message takes a hop of k, GPipe pays once in each direction, 1F1B in every round.
TEST(Communication, LatencyIsExposedAsTheFormulasSay) {
  const Rational hop(1, 10);
  const PassTimes times{.hop = hop};
  for (int p = 2; p <= 8; ++p)
    for (int rounds = 1; rounds <= 4; ++rounds) {
      const int m = rounds * p;
      const PipelineShape shape{.ranks = p, .micro_batches = m};
      const auto extra = [&](std::string_view name) {
        const Schedule schedule = make_schedule(find_schedule(name), shape);
        return simulate(schedule, times).makespan() - simulate(schedule, {}).makespan();
      };
      EXPECT_EQ(extra("gpipe"), 2 * (p - 1) * hop);
      EXPECT_EQ(extra("1f1b"), (2 * (p - 1) * rounds + 2 * (p - 2)) * hop);
    }
}

TEST(Times, AreReadExactly) {
  EXPECT_EQ(rational_from("3"), Rational(3));
  EXPECT_EQ(rational_from("0.25"), Rational(1, 4));
  EXPECT_EQ(rational_from("12.05"), Rational(241, 20));
  EXPECT_EQ(rational_from("2/6"), Rational(1, 3));
  EXPECT_EQ(rational_from("0"), Rational(0));
  for (const char* text : {"", ".", "1.", ".5", "1/0", "1/", "-1", "1e3", "1234567", "1.2.3", "x"})
    EXPECT_THROW(rational_from(text), Error) << text;
}

// Two ranks, two micro-batches: rank 0 runs F0 F1 B0 B1, rank 1 F0 B0 F1 B1.
TEST(Simulation, TakesEachActionsOwnTime) {
  const Schedule schedule =
      make_schedule(find_schedule("1f1b"), {.ranks = 2, .micro_batches = 2, .virtual_stages = 1});
  std::vector<std::vector<Rational>> times = {{1, 1, 2, 2}, {1, 2, 1, 2}};
  EXPECT_EQ(simulate_actions(schedule, times).makespan(), simulate(schedule, {}).makespan());
  EXPECT_EQ(simulate_actions(schedule, times).makespan(), Rational(9));
  times[1][2] = 4;  // the second forward pass of rank 1: everything after it is 3 later
  EXPECT_EQ(simulate_actions(schedule, times).makespan(), Rational(12));
  times[0][2] = Rational(5, 2);  // the first backward pass of rank 0, overlapped with idle time
  const Timeline timeline = simulate_actions(schedule, times, Rational(1, 4));
  EXPECT_EQ(timeline.makespan(), Rational(25, 2));
  EXPECT_EQ(timeline.busy(0), Rational(13, 2));
  EXPECT_EQ(timeline.busy(1), Rational(9));
}

std::string text_of_all(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions)
    text += fmt::format("{}{}", text.empty() ? "" : " ", text_of(action));
  return text;
}

// Written by hand from PyTorch's _add_reduce_grad and _add_unshard_reshard.
TEST(Sharding, AddsTheActionsThatPyTorchAdds) {
  const Schedule one_f_one_b =
      make_schedule(find_schedule("1f1b"), {.ranks = 2, .micro_batches = 2});
  EXPECT_EQ(csv_of(with_gradient_reduction(one_f_one_b)),
            "0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F0,1B0,1F1,1B1,1REDUCE_GRAD\n");
  EXPECT_EQ(csv_of(with_sharding(one_f_one_b)),
            "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,1RESHARD\n");

  const Schedule two_stages = make_schedule(find_schedule("interleaved"),
                                            {.ranks = 2, .micro_batches = 4, .virtual_stages = 2});
  EXPECT_EQ(text_of_all(with_sharding(two_stages, 1).by_rank[0]),
            "0UNSHARD 0F0 0F1 0RESHARD 2UNSHARD 2F0 2F1 2RESHARD 0UNSHARD 0F2 0RESHARD 2UNSHARD "
            "2B0 2RESHARD 0UNSHARD 0F3 0RESHARD 2UNSHARD 2B1 2F2 2RESHARD 0UNSHARD 0B0 0RESHARD "
            "2UNSHARD 2F3 2RESHARD 0UNSHARD 0B1 0RESHARD 2UNSHARD 2B2 2B3 2REDUCE_GRAD 2RESHARD "
            "0UNSHARD 0B2 0B3 0REDUCE_GRAD 0RESHARD");
  for (const int most : {2, 3})
    EXPECT_EQ(text_of_all(with_sharding(two_stages, most).by_rank[0]),
              "0UNSHARD 2UNSHARD 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 "
              "2REDUCE_GRAD 2RESHARD 0B2 0B3 0REDUCE_GRAD 0RESHARD");

  const Schedule three_stages = make_schedule(
      find_schedule("interleaved"), {.ranks = 2, .micro_batches = 2, .virtual_stages = 3});
  const auto text = [&](int most) {
    return text_of_all(with_sharding(three_stages, most).by_rank[0]);
  };
  EXPECT_EQ(text(1),
            "0UNSHARD 0F0 0F1 0RESHARD 2UNSHARD 2F0 2F1 2RESHARD 4UNSHARD 4F0 4F1 4B0 4B1 "
            "4REDUCE_GRAD 4RESHARD 2UNSHARD 2B0 2B1 2REDUCE_GRAD 2RESHARD 0UNSHARD 0B0 0B1 "
            "0REDUCE_GRAD 0RESHARD");
  EXPECT_EQ(text(2),
            "0UNSHARD 2UNSHARD 0F0 0F1 0RESHARD 4UNSHARD 2F0 2F1 4F0 4F1 4B0 4B1 4REDUCE_GRAD "
            "4RESHARD 0UNSHARD 2B0 2B1 2REDUCE_GRAD 2RESHARD 0B0 0B1 0REDUCE_GRAD 0RESHARD");
  EXPECT_EQ(text(3),
            "0UNSHARD 2UNSHARD 4UNSHARD 0F0 0F1 2F0 2F1 4F0 4F1 4B0 4B1 4REDUCE_GRAD 4RESHARD 2B0 "
            "2B1 2REDUCE_GRAD 2RESHARD 0B0 0B1 0REDUCE_GRAD 0RESHARD");
}

TEST(Sharding, LeavesBlocksWhole) {
  const Schedule schedule =
      schedule_from_csv("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,(1B1;0B0)OVERLAP_F_B,0B1\n", "text");
  EXPECT_EQ(csv_of(with_gradient_reduction(schedule)),
            "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,(1B1;0B0)OVERLAP_F_B,1REDUCE_GRAD,0B1,"
            "0REDUCE_GRAD\n");
  EXPECT_EQ(csv_of(with_sharding(schedule, 1)),
            "0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,0UNSHARD,(0F1;1B0)OVERLAP_F_B,0RESHARD,1F1,"
            "0UNSHARD,(1B1;0B0)OVERLAP_F_B,0RESHARD,1REDUCE_GRAD,1RESHARD,0UNSHARD,0B1,"
            "0REDUCE_GRAD,0RESHARD\n");
}

TEST(Sharding, OfEveryScheduleCanBeRunAndHoldsItsLimit) {
  for (const ScheduleEntry& entry : schedules())
    for_shapes(entry, [&](const PipelineShape& x) {
      const Schedule schedule = make_schedule(entry, x);
      const Timeline plain = simulate(schedule, {});
      for (const int most : {0, 1, 2, 3}) {
        const Schedule lowered =
            most == 0 ? with_gradient_reduction(schedule) : with_sharding(schedule, most);
        ASSERT_NO_THROW(check(lowered)) << entry.name;
        const Timeline timeline = simulate(lowered, {});
        EXPECT_EQ(timeline.makespan(), plain.makespan());
        for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
          EXPECT_EQ(timeline.ranks[r].in_flight, plain.ranks[r].in_flight);
          EXPECT_EQ(timeline.ranks[r].begin(), plain.ranks[r].begin());
          EXPECT_EQ(timeline.ranks[r].end(), plain.ranks[r].end());
          const int in_a_block = entry.name == "dualpipe-v" ? 2 : 1;
          const int limit = most == 0 ? 0 : std::min(x.virtual_stages, std::max(most, in_a_block));
          EXPECT_EQ(timeline.ranks[r].unsharded, limit);
        }
      }
    });
}

TEST(Sharding, IsAddedOnce) {
  const Schedule schedule = make_schedule(find_schedule("1f1b"), {.ranks = 2, .micro_batches = 2});
  EXPECT_THROW(with_sharding(schedule, 0), Error);
  try {
    with_sharding(with_gradient_reduction(schedule));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("the schedule already has 0REDUCE_GRAD"));
  }
}

TEST(Sharding, StandsBetweenMessagesInItsPlace) {
  const Schedule schedule = with_sharding(
      make_schedule(find_schedule("gpipe"), {.ranks = 2, .micro_batches = 1, .virtual_stages = 1}));
  const auto text = [](const Program& program) {
    std::string all;
    for (const auto& steps : program.by_rank)
      for (const Step& step : steps) all += text_of(step) + " ";
    return all;
  };
  EXPECT_EQ(text(deadlock_free(schedule)),
            "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD "
            "1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD ");
  EXPECT_EQ(text(in_order(schedule)),
            "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD "
            "1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD ");
}

//                     rank 0                rank 1
//   unshard           0 - 1/2               0 - 1/2
//   F0, F1            1/2 - 3/2 - 5/2       3/2 - 5/2, 9/2 - 11/2
//   B0, B1            9/2 - 13/2, 15/2 -    5/2 - 9/2, 11/2 - 15/2
//   reduce            19/2 - 21/2           15/2 - 17/2
TEST(ShardedSimulation, WaitsForParametersAndEndsWithGradients) {
  const Schedule schedule =
      with_sharding(make_schedule(find_schedule("1f1b"), {.ranks = 2, .micro_batches = 2}));
  const Timeline timeline = simulate(schedule, {.unshard = Rational(1, 2), .reduce_gradients = 1});
  const auto times = [&](int rank) {
    std::string text;
    for (const Interval& interval : timeline.ranks[static_cast<std::size_t>(rank)].intervals)
      text +=
          fmt::format("{}{} {}-{}", text.empty() ? "" : ", ", text_of(interval.action),
                      text_of(timeline.time(interval.begin)), text_of(timeline.time(interval.end)));
    return text;
  };
  EXPECT_EQ(times(0),
            "0UNSHARD 0-1/2, 0F0 1/2-3/2, 0F1 3/2-5/2, 0B0 9/2-13/2, 0B1 15/2-19/2, "
            "0REDUCE_GRAD 19/2-21/2, 0RESHARD 19/2-19/2");
  EXPECT_EQ(times(1),
            "1UNSHARD 0-1/2, 1F0 3/2-5/2, 1B0 5/2-9/2, 1F1 9/2-11/2, 1B1 11/2-15/2, "
            "1REDUCE_GRAD 15/2-17/2, 1RESHARD 15/2-15/2");
  EXPECT_EQ(timeline.makespan(), Rational(21, 2));
  EXPECT_EQ(timeline.busy(0), Rational(6));
  EXPECT_EQ(timeline.idle(1), Rational(9, 2));
  EXPECT_EQ(timeline.inner_idle(0), Rational(4));
  EXPECT_EQ(timeline.inner_idle(1), Rational(1));
  EXPECT_EQ(timeline.bubble_fraction(), Rational(3, 7));
  EXPECT_EQ(chart_of(timeline, 50, false),
            "rank 0   ..F0  F1  ........B0      ....B1      ....\n"
            "         U0                                    G0  \n"
            "rank 1   ......F0  B0      F1  B1      ............\n"
            "         U1                            G1  \n");
}

// One rank with two stages: F takes 1, B 2, unsharding 3/2 and reducing 5/2. The second unshard is
// overlapped with the first forward pass, and the second reduction queues behind the first.
TEST(ShardedSimulation, HasOneCommunicationStreamPerRank) {
  const Schedule schedule = schedule_from_csv(
      "0UNSHARD,1UNSHARD,0F0,1F0,1B0,1REDUCE_GRAD,1RESHARD,0B0,0REDUCE_GRAD,0RESHARD\n", "text");
  check(schedule);
  const Timeline timeline = simulate(schedule, {.forward = 2,
                                                .input_gradient = 2,
                                                .weight_gradient = 2,
                                                .unshard = 3,
                                                .reduce_gradients = 5});
  std::vector<Rational> begins;
  for (const Interval& interval : timeline.ranks[0].intervals)
    begins.push_back(timeline.time(interval.begin));
  EXPECT_THAT(begins, testing::ElementsAre(Rational(0), Rational(3, 2), Rational(3, 2), Rational(3),
                                           Rational(4), Rational(6), Rational(6), Rational(6),
                                           Rational(17, 2), Rational(8)));
  EXPECT_EQ(timeline.makespan(), Rational(11));
  EXPECT_EQ(timeline.busy(0), Rational(6));
  EXPECT_EQ(timeline.ranks[0].unsharded, 2);
}

// With room for one stage only, a rank cannot prefetch.
TEST(ShardedSimulation, PrefetchingHidesUnshards) {
  const Schedule schedule = make_schedule(find_schedule("interleaved"),
                                          {.ranks = 2, .micro_batches = 2, .virtual_stages = 2});
  const auto makespan = [&](int most) {
    return simulate(with_sharding(schedule, most), {.unshard = 1}).makespan();
  };
  EXPECT_EQ(simulate(schedule, {}).makespan(), Rational(15, 2));
  EXPECT_EQ(makespan(2), Rational(8));  // only the first unshard of rank 0 is exposed
  EXPECT_EQ(makespan(1), Rational(9));  // and two more at changes of the stage
}

// Rank r of 1F1B ends r tB before rank 0, so its reduction is hidden. Rank 0's is exposed;
// interleaving reduces it to one stage's.
TEST(ShardedSimulation, ReductionIsHiddenInTheBubbleOfRanksThatEndEarly) {
  for (int p = 2; p <= 8; ++p)
    for (const Rational reduce : {Rational(1), Rational(3, 2), Rational(2)}) {
      const PassTimes times{.reduce_gradients = reduce};
      const auto simulated = [&](std::string_view name, int v) {
        const PipelineShape shape{.ranks = p, .micro_batches = 2 * p, .virtual_stages = v};
        const Schedule schedule = make_schedule(find_schedule(name), shape);
        EXPECT_EQ(simulate(schedule, times).makespan(), simulate(schedule, {}).makespan());
        return std::pair{simulate(schedule, {}).makespan(),
                         simulate(with_gradient_reduction(schedule), times)};
      };
      const auto [plain, timeline] = simulated("1f1b", 1);
      EXPECT_EQ(timeline.makespan(), plain + reduce);
      for (int r = 0; r < p; ++r) {
        const Rational end = timeline.time(timeline.ranks[static_cast<std::size_t>(r)].end());
        EXPECT_EQ(end, plain - r * times.backward() + reduce);
        EXPECT_EQ(end <= plain, r > 0);
      }
      const auto [plain_interleaved, interleaved] = simulated("interleaved", 2);
      EXPECT_EQ(interleaved.makespan(), plain_interleaved + reduce / 2);
    }
}

TEST(Figures, CompareWithTheirClosedForms) {
  const ScheduleEntry& entry = find_schedule("1f1b");
  const PipelineShape shape{.ranks = 4, .micro_batches = 8};
  const Timeline timeline = simulate(make_schedule(entry, shape), {});
  const auto lines = schedule_theory(entry, shape, {}, timeline);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].expected, 33);
  EXPECT_EQ(lines[0].measured, 33);
  EXPECT_EQ(lines[2].expected, 3);
  EXPECT_EQ(lines[2].measured, 3);
  for (const PassTimes& times :
       {PassTimes{.hop = 1}, PassTimes{.unshard = 1}, PassTimes{.reduce_gradients = 1}})
    EXPECT_EQ(schedule_theory(entry, shape, times, timeline).size(), 4u);
}

}  // namespace
}  // namespace lockstep
