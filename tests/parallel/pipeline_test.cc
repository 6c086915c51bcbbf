// Pipelines compared with the reference run in float64 and with one rank; their traffic, memory and
// bubbles compared with the closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/pipeline/schedules/text.h"
#include "parallel/pipeline/simulator/simulate.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::Folder;
using test::golden_run;
using test::run;

struct PipelineCase {
  int ranks;
  const char* schedule;
  int virtual_stages = 0;
};
void PrintTo(const PipelineCase& c, std::ostream* out) {
  *out << c.ranks << " ranks, " << c.schedule << " " << c.virtual_stages;
}
std::string name_of_case(const testing::TestParamInfo<PipelineCase>& test) {
  std::string name = std::to_string(test.param.ranks) + "_" + test.param.schedule + "_" +
                     std::to_string(test.param.virtual_stages);
  std::ranges::replace(name, '-', '_');
  return name;
}

TrainOptions pipeline_run(const PipelineCase& c, DType dtype = DType::f64) {
  TrainOptions options = golden_run("pipeline", dtype);
  options.schedule = c.schedule;
  options.virtual_stages = c.virtual_stages;
  options.micro_batches = 8;
  return options;
}

TrainResult run_in_unit_time(int ranks, TrainOptions options) {
  options.compute_seconds = 3.0 * options.micro_batches;
  return run({.ranks = ranks, .timeout_s = 30, .fault = {}, .clock = Clock::unit, .links = {}},
             options);
}

class Pipelines : public testing::TestWithParam<PipelineCase> {};

TEST_P(Pipelines, ReproduceTheGoldenRun) {
  const TrainResult result = run(GetParam().ranks, pipeline_run(GetParam()));
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  TrainOptions single = pipeline_run(GetParam(), DType::f32);
  expect_golden(run(GetParam().ranks, single), 1e-5);
}

TEST_P(Pipelines, FinalWeightsEqualSerial) {
  test::expect_same_weights(GetParam().ranks, pipeline_run(GetParam()));
}

// The real run takes the simulator's time, and holds as many micro-batches.
TEST_P(Pipelines, TheBubbleInUnitTimeIsTheSimulators) {
  TrainOptions options = pipeline_run(GetParam());
  options.steps = 2;
  const TrainResult result = run_in_unit_time(GetParam().ranks, options);
  const ScheduleEntry& entry = find_schedule(options.schedule);
  const PipelineShape shape = complete(
      entry,
      {.ranks = GetParam().ranks, .micro_batches = 8, .virtual_stages = options.virtual_stages});
  const Timeline timeline = simulate(make_schedule(entry, shape), {});
  ASSERT_TRUE(result.bubble.has_value());
  EXPECT_NEAR(result.bubble->fraction, value_of(timeline.bubble_fraction()), 1e-12);
  EXPECT_NEAR(result.bubble->simulated_fraction, value_of(timeline.bubble_fraction()), 1e-8);
  EXPECT_NEAR(result.bubble->replayed_fraction, value_of(timeline.bubble_fraction()), 1e-8);
  if (const auto makespan = entry.makespan(shape, {})) {
    EXPECT_NEAR(result.bubble->expected_fraction.value_or(-1),
                1 - value_of(Rational(24) / *makespan), 1e-8);
  }
  for (const RankRecord& rank : result.ranks)
    EXPECT_EQ(rank.in_flight, timeline.ranks[static_cast<std::size_t>(rank.rank)].in_flight);
  EXPECT_TRUE(theory_holds(result));
}

// The same if messages take time: 1F1B pays for it in every round, GPipe once in each direction.
TEST(PipelineTime, OfMessagesIsTheSimulatorsToo) {
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "zb-h2", "dualpipe-v"}) {
    const ScheduleEntry& entry = find_schedule(schedule);
    TrainOptions options = pipeline_run({4, schedule});
    options.steps = 2;
    options.compute_seconds = 3.0 * options.micro_batches;
    const TrainResult result = run({.ranks = 4,
                                    .timeout_s = 30,
                                    .fault = {},
                                    .clock = Clock::unit,
                                    .links = parse_links("alpha=0.125,beta=0")},
                                   options);
    const Timeline timeline =
        simulate(make_schedule(
                     entry, complete(entry, {.ranks = 4, .micro_batches = 8, .virtual_stages = 0})),
                 {.hop = Rational(1, 8)});
    EXPECT_NEAR(result.bubble->fraction, value_of(timeline.bubble_fraction()), 1e-9) << schedule;
    EXPECT_NEAR(result.bubble->simulated_fraction, value_of(timeline.bubble_fraction()), 1e-8);
    EXPECT_NEAR(result.bubble->replayed_fraction, value_of(timeline.bubble_fraction()), 1e-8);
  }
}

// The second forward pass gives the same bits, with less memory.
TEST_P(Pipelines, RecomputingChangesNothingButTheMemory) {
  TrainOptions options = pipeline_run(GetParam());
  options.steps = 3;
  const TrainResult kept = run(GetParam().ranks, options);
  options.recompute = "full";
  const TrainResult again = run(GetParam().ranks, options);
  EXPECT_TRUE(theory_holds(again));
  for (std::size_t i = 0; i < kept.steps.size(); ++i) {
    EXPECT_EQ(again.steps[i].loss, kept.steps[i].loss);
    EXPECT_EQ(again.steps[i].grad_norm, kept.steps[i].grad_norm);
  }
  const auto activations = [](const TrainResult& result) {
    return result.ranks.front().peak_bytes.at("activations");
  };
  if (std::string_view(GetParam().schedule) == "gpipe") {
    EXPECT_LT(2 * activations(again), activations(kept));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Pipelines,
    test::sampled<PipelineCase>(
        {PipelineCase{1, "1f1b"},           PipelineCase{2, "naive"},
         PipelineCase{2, "gpipe"},          PipelineCase{4, "gpipe"},
         PipelineCase{4, "gpipe-lifo"},     PipelineCase{2, "1f1b"},
         PipelineCase{4, "1f1b"},           PipelineCase{8, "1f1b"},
         PipelineCase{2, "interleaved", 2}, PipelineCase{2, "interleaved", 4},
         PipelineCase{4, "interleaved", 2}, PipelineCase{4, "interleaved-rounds", 2},
         PipelineCase{4, "looped-bfs", 2},  PipelineCase{2, "zb-h1"},
         PipelineCase{4, "zb-h1"},          PipelineCase{8, "zb-h1"},
         PipelineCase{4, "zb-h2"},          PipelineCase{1, "zb-v"},
         PipelineCase{2, "zb-v"},           PipelineCase{4, "zb-v"},
         PipelineCase{2, "dualpipe-v"},     PipelineCase{4, "dualpipe-v"}}),
    name_of_case);

// Every stage sums its gradients in the order of micro-batches, so all schedules with the same number
// of stages give the same bits.
TEST(PipelineBits, AreTheSameForAllAscendingSchedules) {
  const Folder folder;
  std::vector<double> first;
  for (const PipelineCase& c :
       {PipelineCase{4, "1f1b"}, PipelineCase{4, "gpipe"}, PipelineCase{4, "naive"},
        PipelineCase{4, "zb-h1"}, PipelineCase{4, "zb-h2"}, PipelineCase{2, "interleaved", 2},
        PipelineCase{2, "zb-v"}, PipelineCase{2, "dualpipe-v"}, PipelineCase{2, "looped-bfs", 2}}) {
    TrainOptions options = pipeline_run(c, DType::f32);
    options.grad_clip = 0;  // because the norm is summed rank by rank
    options.steps = 4;
    options.save = folder.file("w.safetensors");
    run(c.ranks, options);
    const auto weights = test::weights_of(options.save);
    if (first.empty()) first = weights;
    EXPECT_EQ(weights, first) << c.schedule;
  }
}

TEST(PipelineShapes, LayersNeedNotBeEven) {
  // 8 layers on 3 ranks and on 5.
  for (const int ranks : {3, 5}) {
    const TrainResult result = run(ranks, pipeline_run({ranks, "1f1b"}));
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
  }
  TrainOptions options = pipeline_run({3, "zb-v"});
  expect_golden(run(3, options), 1e-10);
}

TEST(PipelineShapes, MicroBatchesNeedNotBeEven) {
  TrainOptions options = pipeline_run({4, "1f1b"});
  options.micro_batches = 5;
  const TrainResult result = run(4, options);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
}

TEST(PipelineShapes, ValidationGoesThroughTheStages) {
  TrainOptions serial = golden_run("serial"), options = pipeline_run({2, "interleaved", 2});
  for (TrainOptions* o : {&serial, &options}) {
    o->order = "random";
    o->validation_fraction = 0.3;
    o->eval_interval = 2;
    o->steps = 4;
  }
  const TrainResult expected = run(1, serial), got = run(2, options);
  ASSERT_EQ(got.validation.size(), expected.validation.size());
  for (std::size_t i = 0; i < got.validation.size(); ++i)
    EXPECT_NEAR(got.validation[i].loss, expected.validation[i].loss, 1e-10);
}

TEST(PipelineShapes, SamplesFromTheWholeModel) {
  TrainOptions serial = golden_run("serial"), options = pipeline_run({4, "zb-h1"});
  serial.sample = options.sample = 12;
  serial.prompt = options.prompt = "a";
  EXPECT_EQ(run(4, options).sample, run(1, serial).sample);
}

TEST(PipelineShapes, SixteenBitsAndSkippedStepsOfAllRanks) {
  TrainOptions serial = golden_run("serial", DType::f16),
               options = pipeline_run({4, "1f1b"}, DType::f16);
  const TrainResult expected = run(1, serial), got = run(4, options);
  int skipped = 0;
  for (std::size_t i = 0; i < got.steps.size(); ++i) {
    EXPECT_EQ(got.steps[i].skipped, expected.steps[i].skipped);
    EXPECT_EQ(got.steps[i].loss_scale, expected.steps[i].loss_scale);
    EXPECT_NEAR(got.steps[i].loss, expected.steps[i].loss, 2e-2);
    skipped += got.steps[i].skipped ? 1 : 0;
  }
  EXPECT_TRUE(theory_holds(got));
}

TEST(PipelineFiles, AScheduleOfOnesOwnRuns) {
  const Folder folder;
  TrainOptions options = pipeline_run({4, "1f1b"});
  options.schedule_file = folder.file("schedule.csv");
  write_file(options.schedule_file,
             csv_of(make_schedule(find_schedule("zb-h2"), {.ranks = 4, .micro_batches = 8})));
  const TrainResult result = run(4, options);
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  EXPECT_FALSE(result.bubble->expected_fraction.has_value());
  // Another placement: the middle rank has the first and the last stage.
  write_file(options.schedule_file, "1F0,1F1,1B0,1B1\n0F0,0F1,2F0,2B0,2F1,2B1,0B0,0B1\n");
  options.micro_batches = 2;
  expect_golden(run(2, options), 1e-10);
}

// The first rank could go forward long before it can go back, but waits: they are one block.
TEST(PipelineFiles, ABlockOfTwoPassesBeginsWhenBothCan) {
  const Folder folder;
  const std::string text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n";
  TrainOptions options = pipeline_run({2, "1f1b"});
  options.schedule_file = folder.file("schedule.csv");
  write_file(options.schedule_file, text);
  options.micro_batches = 2;
  options.steps = 2;
  const TrainResult result = run_in_unit_time(2, options);
  const Timeline timeline = simulate(schedule_from_csv(text, "text"), {});
  EXPECT_NEAR(result.bubble->fraction, value_of(timeline.bubble_fraction()), 1e-12);
  EXPECT_NEAR(result.bubble->fraction, 0.5, 1e-12);  // 6 of 12 units
}

TEST(PipelineErrors, NameTheRule) {
  const Folder folder;
  const auto message = [](const TrainOptions& options, int ranks) -> std::string {
    try {
      plan_of(options, ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_EQ(message(pipeline_run({4, "1f1b"}), 4), "");
  EXPECT_THAT(message(pipeline_run({9, "1f1b"}), 9),
              HasSubstr("9 pipeline stages are more than the model's 8 layers"));
  EXPECT_THAT(message(pipeline_run({4, "interleaved", 3}), 4), HasSubstr("12 pipeline stages"));
  EXPECT_THAT(message(pipeline_run({3, "interleaved", 2}), 3), HasSubstr("ranks <= group"));
  EXPECT_THAT(message(pipeline_run({4, "2f2b"}), 4), HasSubstr("unknown schedule"));
  TrainOptions options = pipeline_run({4, "1f1b"});
  options.micro_batches = 9;
  EXPECT_THAT(message(options, 4), HasSubstr("a global batch of 8 sequences"));
  options = pipeline_run({4, "1f1b"});
  options.recompute = "some";
  EXPECT_THAT(message(options, 4), HasSubstr("--recompute 'some'"));
  options = pipeline_run({4, "1f1b"});
  options.schedule_file = folder.file("no.csv");
  EXPECT_THAT(message(options, 4), HasSubstr("no.csv"));
  options.schedule_file = folder.file("schedule.csv");
  write_file(options.schedule_file, "0F0,0B0\n1F0,1B0\n");
  EXPECT_THAT(message(options, 2),
              HasSubstr("a schedule of 1 micro-batches, and --micro-batches is 8"));
  options.micro_batches = 1;
  EXPECT_THAT(message(options, 4), HasSubstr("a schedule for 2 ranks"));
  EXPECT_EQ(message(options, 2), "");
  write_file(options.schedule_file, "0F0\n1F0,1B0\n");
  EXPECT_THAT(message(options, 2), HasSubstr("no backward pass of stage 0"));
}

// Memory for messages does not grow with the number of micro-batches.
TEST(PipelineMemory, OfMessagesIsBounded) {
  TrainOptions options = golden_run("pipeline");
  options.global_batch = 32;
  options.order = "random";
  options.steps = 1;
  const auto message_bytes = [&](int micro_batches, const char* schedule) {
    options.micro_batches = micro_batches;
    options.schedule = schedule;
    options.global_batch = micro_batches;
    std::int64_t most = 0;
    for (const RankRecord& rank : run_in_unit_time(4, options).ranks)
      most = std::max(most, rank.peak_bytes.at("communication"));
    return most;
  };
  for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "naive"})
    EXPECT_EQ(message_bytes(32, schedule), message_bytes(16, schedule)) << schedule;
}

}  // namespace
}  // namespace lockstep
