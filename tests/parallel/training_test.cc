// Every technique compared with the reference run in float64 and with one rank: losses, gradient
// norms, final weights, and traffic and memory compared with the closed forms.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <fstream>
#include <map>
#include <tuple>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "parallel/rank/compute_clock.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::golden_run;
using test::run;

class Ddp : public testing::TestWithParam<int> {};

TEST_P(Ddp, ReproducesTheGoldenRunInDouble) {
  expect_golden(run(GetParam(), golden_run("ddp")), 1e-10);
}
TEST_P(Ddp, ReproducesTheGoldenRunInFloat) {
  expect_golden(run(GetParam(), golden_run("ddp", DType::f32)), 1e-5);
}

TEST_P(Ddp, FinalWeightsEqualSerial) { test::expect_same_weights(GetParam(), golden_run("ddp")); }

TEST_P(Ddp, ResultAndTrafficEqualTheClosedFormWhateverTheBuckets) {
  const int ranks = GetParam();
  const double parameters = 106304, element = 8;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{10'000}, std::int64_t{25} << 20}) {
    TrainOptions options = golden_run("ddp");
    options.steps = 2;
    options.first_bucket_bytes = options.bucket_bytes = bytes;
    const TrainResult result = run(ranks, options);
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    ASSERT_EQ(std::ssize(result.ranks), ranks);
    for (const RankRecord& rank : result.ranks) {
      ASSERT_EQ(rank.traffic.size(), ranks > 1 ? 1U : 0U) << "a step sends nothing but gradients";
      if (ranks == 1) continue;
      // All tensors of this model divide evenly by these numbers of ranks.
      EXPECT_EQ(static_cast<double>(rank.traffic.at("gradients").sent_bytes),
                2.0 * (ranks - 1) / ranks * parameters * element);
      EXPECT_EQ(rank.traffic.at("gradients").sent_bytes,
                rank.traffic.at("gradients").received_bytes);
    }
  }
}

TEST_P(Ddp, ResultAndTrafficAreRightWithEveryAlgorithm) {
  const int ranks = GetParam();
  for (const AllReduceAlgorithm& algorithm : all_reduce_algorithms()) {
    if (algorithm.need == Need::vendor) continue;
    TrainOptions options = golden_run("ddp");
    options.steps = 2;
    options.algorithm = algorithm.name;
    options.first_bucket_bytes = 10'000;
    SCOPED_TRACE(algorithm.name);
    const TrainResult result = run(ranks, options);
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    EXPECT_GE(std::ssize(result.theory), 10 * ranks);
  }
  TrainOptions unknown = golden_run("ddp");
  unknown.algorithm = "ringg";
  EXPECT_THROW(plan_of(unknown, ranks), Error);
}

// Gradients rounded to 8 or 11 bits: losses stay close, and the bytes are a fraction.
TEST_P(Ddp, GradientsTravelInAShorterType) {
  const int ranks = GetParam();
  for (const auto& [type, tolerance] : {std::pair{DType::bf16, 2e-3}, {DType::f16, 2e-4}}) {
    TrainOptions options = golden_run("ddp");
    options.reduce_dtype = type;
    options.first_bucket_bytes = 10'000;
    const TrainResult result = run(ranks, options);
    expect_golden(result, tolerance);
    // A single replica sends nothing.
    EXPECT_EQ(result.steps.back().loss != run(ranks, golden_run("ddp")).steps.back().loss,
              ranks > 1);
    EXPECT_TRUE(theory_holds(result));
    for (const RankRecord& rank : result.ranks) {
      if (ranks == 1) continue;
      EXPECT_EQ(static_cast<double>(rank.traffic.at("gradients").sent_bytes),
                2.0 * (ranks - 1) / ranks * 106304 * 2);
    }
  }
  TrainOptions same = golden_run("ddp"), integers = golden_run("ddp");
  same.reduce_dtype = DType::f64;
  expect_golden(run(ranks, same), 1e-10);
  integers.reduce_dtype = DType::i32;
  EXPECT_THROW(plan_of(integers, ranks), Error);
}

// A slowdown factor stretches computing up to each message, but not waiting.
TEST(ComputeClock, AStragglerStretchesComputing) {
  launch({.ranks = 1, .fault = {}, .clock = Clock::unit, .links = {}}, [](RankContext& context) {
    Transport& clock = context.world.transport();
    TrainOptions options;
    double at_message = 0;
    const auto seconds = [&](double waited) {
      double waiting = 0;
      ComputeClock compute(context.world, options, [&] { return waiting; });
      const double begin = clock.now_seconds();
      compute.run(3, [&] {
        clock.advance(1 + waited);
        waiting += waited;
        compute.fall_behind();
        at_message = clock.now_seconds() - begin;
        clock.advance(0.5);
      });
      return clock.now_seconds() - begin;
    };
    EXPECT_NEAR(seconds(2), 1.5 + 2, 1e-9);
    options.slow_ranks = {{0, 3}};
    EXPECT_NEAR(seconds(0), 3 * 1.5, 1e-9);
    EXPECT_NEAR(at_message, 3 * 1, 1e-9);
    EXPECT_NEAR(seconds(2), 3 * 1.5 + 2, 1e-9);
    EXPECT_NEAR(at_message, 3 * 1 + 2, 1e-9);
  });
}

TEST(DdpTime, HiddenAndExposedAreAllCommunication) {
  TrainOptions options = golden_run("ddp");
  const auto times = [&](bool overlap) {
    options.overlap = overlap;
    TrainResult result;
    launch({.ranks = 2, .clock = Clock::unit, .links = parse_links("alpha=1us,beta=1GB/s")},
           [&](RankContext& context) {
             TrainResult mine = train(context, plan_of(options, context.world.size()));
             if (context.world.rank() == 0) result = std::move(mine);
           });
    return result.ranks.front();
  };
  // Computing takes no time, so it cannot hide communication.
  const RankRecord overlapped = times(true), after = times(false);
  EXPECT_GT(after.exposed_communication_seconds, 0);
  EXPECT_EQ(after.hidden_communication_seconds, 0);
  EXPECT_NEAR(overlapped.exposed_communication_seconds + overlapped.hidden_communication_seconds,
              after.exposed_communication_seconds, 1e-12);
  EXPECT_NEAR(overlapped.hidden_communication_seconds, 0, 1e-12);
}

TEST_P(Ddp, OverlapAndMicroBatchesChangeNothing) {
  const int ranks = GetParam();
  TrainOptions options = golden_run("ddp");
  const TrainResult overlapped = run(ranks, options);
  options.overlap = false;
  const TrainResult plain = run(ranks, options);
  for (std::size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(plain.steps[i].loss, overlapped.steps[i].loss)
        << "the same sums in the same order: the same bits";
    EXPECT_EQ(plain.steps[i].grad_norm, overlapped.steps[i].grad_norm);
  }
  options.micro_batches = 8 / ranks;
  const TrainResult accumulated = run(ranks, options);
  expect_golden(accumulated, 1e-10);
  EXPECT_TRUE(theory_holds(accumulated)) << "gradients are exchanged once a step";
}

INSTANTIATE_TEST_SUITE_P(Ranks, Ddp, test::sampled<int>({4, 1, 2, 8}));

TEST(Training, VirtualTimeChangesNoBitAndCostsWhatTheClosedFormSays) {
  TrainOptions options = golden_run("ddp");
  options.steps = 3;
  options.overlap = false;
  const TrainResult wall = run(4, options);
  const LinkModel links = parse_links("alpha=5,beta=0.0009765625");
  const TrainResult unit =
      run({.ranks = 4, .fault = {}, .clock = Clock::unit, .links = links}, options);
  const double gradients =
      all_reduce_ring().seconds({.ranks = 4, .count = 106304, .element_bytes = 8}, links);
  const double loss =
      all_reduce_ring().seconds({.ranks = 4, .count = 1, .element_bytes = 8}, links);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(unit.steps[i].loss, wall.steps[i].loss);
    EXPECT_EQ(unit.steps[i].grad_norm, wall.steps[i].grad_norm);
    // Computing is free; after the loss is reported, ranks differ by at most the time it takes.
    EXPECT_NEAR(unit.steps[i].seconds, gradients, loss);
  }
  EXPECT_TRUE(theory_holds(unit));
}

// Ranks and micro-batches of unequal size have the right weight.
TEST(Training, SharesNeedNotBeEqual) {
  for (const auto& [technique, ranks, micro_batches] :
       {std::tuple{"serial", 1, 3}, {"ddp", 3, 1}, {"ddp", 3, 2}, {"ddp", 5, 1}, {"ps", 4, 2}}) {
    TrainOptions options = golden_run(technique);
    options.micro_batches = micro_batches;
    const TrainResult result = run(ranks, options);
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
  }
  TrainOptions options = golden_run("ddp");
  options.order = "random";
  options.validation_fraction = 0.2;
  const TrainResult one = run(1, options), three = run(3, options);
  EXPECT_NEAR(one.validation[0].loss, three.validation[0].loss, 1e-10);
}

TEST(Training, SameSeedSameBits) {
  TrainOptions options = golden_run("ddp", DType::f32);
  options.init.clear();
  options.order = "random";
  const TrainResult first = run(2, options), second = run(2, options);
  options.seed = 2;
  const TrainResult other = run(2, options);
  for (std::size_t i = 0; i < first.steps.size(); ++i)
    EXPECT_EQ(first.steps[i].loss, second.steps[i].loss);
  EXPECT_NE(first.steps[0].loss, other.steps[0].loss);
}

TEST(Training, RandomOrderIsTheSameForAnyNumberOfRanks) {
  TrainOptions options = golden_run("ddp");
  options.order = "random";
  const TrainResult one = run(1, options), four = run(4, options);
  for (std::size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(one.steps[i].loss, four.steps[i].loss, 1e-10);
}

TEST(Training, ValidationIsTheSameForAnyNumberOfRanks) {
  TrainOptions options = golden_run("ddp");
  options.order = "random";
  options.validation_fraction = 0.2;
  options.steps = 10;
  options.eval_interval = 5;
  const TrainResult one = run(1, options), four = run(4, options);
  ASSERT_EQ(one.validation.size(), 2U);
  ASSERT_EQ(four.validation.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(one.validation[i].loss, four.validation[i].loss, 1e-10);
}

TEST(Training, BadOptionsNameTheRule) {
  const auto refused = [](int ranks, TrainOptions options, const std::string& part) {
    try {
      run(ranks, options);
      ADD_FAILURE() << "accepted; expected " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  TrainOptions options = golden_run("ddp");
  refused(16, options, "as many sequences as micro-batches");
  options.micro_batches = 3;
  refused(4, options, "as many sequences as micro-batches");
  refused(2, golden_run("serial"), "train ddp");
  options = golden_run("ddp");
  options.sequence_length = 17;
  refused(1, options, "context");
  options = golden_run("ddp");
  options.steps = 1000;
  refused(2, options, "--order random");
  options = golden_run("ddp");
  options.beta1 = 1;
  refused(1, options, "--beta1");
  options = golden_run("ddp");
  options.learning_rate = std::nan("");
  refused(1, options, "--lr");
}

TEST(Training, LossThatIsNotFiniteStopsTheRun) {
  TrainOptions options = golden_run("ddp", DType::f32);
  options.learning_rate = 1e30;
  options.grad_clip = 0;
  try {
    run(2, options);
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::wrong_result);
    EXPECT_NE(std::string(error.what()).find("--lr"), std::string::npos);
  }
}

// A run of many steps holds a record of each on rank 0, for its result, and nothing else that grows.
class LongRuns : public testing::TestWithParam<const char*> {};

TEST_P(LongRuns, KeepOneRecordOfAStep) {
  if (!LOCKSTEP_THOROUGH) GTEST_SKIP() << "a sanitizer has its own heap, which mallinfo2 ignores";
  const test::Folder folder;
  std::ofstream(folder.file("model.json"))
      << R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 8, "vocab_size": 256})";
  TrainOptions options = golden_run(GetParam(), DType::f32);
  options.model = folder.file("model.json");
  options.init.clear();
  options.order = "random";
  options.global_batch = 2;
  if (options.technique == "pipeline") {
    options.micro_batches = 2;
    options.compute_seconds = 1;
  }
  // Two powers of two, up to which a vector grows; the recorder of operations is full before.
  constexpr int begin = 2048, end = 4096;
  // At `end` all ranks still train: one that has finished allocates its report.
  options.steps = end + 4;
  const int ranks = options.technique == "serial" ? 1 : options.technique == "ps" ? 3 : 2;
  const Plan plan = plan_of(options, ranks);
  std::map<int, std::size_t> bytes;  // on the heap, after a step
  launch({.ranks = ranks, .fault = {}, .clock = Clock::unit}, [&](RankContext& context) {
    const TrainResult mine = train(context, plan, [&](const StepRecord& step) {
      const auto heap = mallinfo2();
      if (step.step == begin || step.step == end) bytes[step.step] = heap.uordblks + heap.hblkhd;
    });
    EXPECT_EQ(std::ssize(mine.steps), context.world.rank() == 0 ? options.steps : 0);
  });
  constexpr double slack = 1 << 13;  // messages on their way, and pages that are not full
  EXPECT_LE(static_cast<double>(bytes[end]) - static_cast<double>(bytes[begin]),
            (end - begin) * static_cast<double>(sizeof(StepRecord)) + slack);
}

INSTANTIATE_TEST_SUITE_P(Techniques, LongRuns,
                         testing::Values("serial", "ddp", "fsdp", "pipeline", "ps"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lockstep
