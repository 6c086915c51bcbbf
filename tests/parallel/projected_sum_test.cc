// Gradients that travel as GaLore projects them: sums by plain loops, training equal to one rank, bytes, and
// what is refused.
#include "parallel/exchange/projected_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/predict/predict.h"
#include "tests/parallel/checkpoint_runs.h"
#include "tests/parallel/exchanged_numbers.h"

namespace lockstep {
namespace {

using test::Case;
using test::Numbers;
using testing::HasSubstr;

constexpr Count own_rows = 6, own_columns = 9, own_rank = 2;

// The matrix and a vector after it.
ExchangedBucket bucket() {
  return {{0, own_rows * own_columns + 5},
          {{.name = "w",
            .shape = {own_rows, own_columns},
            .hidden = {own_rows, {4, 5}},
            .count = own_rows * own_columns},
           {.name = "b", .shape = {5}, .offset = own_rows * own_columns, .count = 5}}};
}

// a [n, k] times b [k, m], each transposed if it says so.
Numbers product(const Numbers& a, const Numbers& b, Count n, Count k, Count m, bool a_transposed,
                bool b_transposed) {
  Numbers c(static_cast<std::size_t>(n * m));
  for (Count i = 0; i < n; ++i)
    for (Count j = 0; j < m; ++j)
      for (Count l = 0; l < k; ++l)
        c[static_cast<std::size_t>(i * m + j)] +=
            a[static_cast<std::size_t>(a_transposed ? l * n + i : i * k + l)] *
            b[static_cast<std::size_t>(b_transposed ? j * k + l : l * m + j)];
  return c;
}

TEST(ProjectedSum, IsTheProjectionOfTheSum) {
  constexpr int ranks = 3;
  const Numbers p = test::gradients_of(7, 1, own_rows * own_rank),
                q = test::gradients_of(8, 1, own_rank * own_columns);
  int compared = 0;
  for (const std::string& how : Galore::projections()) {
    const ProjectionSettings settings{.rank = own_rank, .projection = how};
    const ProjectedMatrix shape(settings, bucket().parameters[0].hidden);
    Numbers got, sum(static_cast<std::size_t>(bucket().range.count));
    for (int r = 0; r < ranks; ++r) {
      const Numbers own = test::gradients_of(r, 0, std::ssize(sum));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
    launch({.ranks = ranks, .fault = {}}, [&](RankContext& context) {
      const auto projected =
          make_projected_sum(settings, DType::f64, {bucket()}, context.world, host_device());
      Numbers own_p = p, own_q = q;
      projected->take_projectors([&](const std::string& name) -> Projectors {
        EXPECT_EQ(name, "w");
        return {shape.inputs ? host_slice(std::span(own_p)) : Slice{},
                shape.outputs ? host_slice(std::span(own_q)) : Slice{}};
      });
      Numbers own = test::gradients_of(context.world.rank(), 0, std::ssize(sum));
      projected->run(context.world, 0, host_slice(std::span(own)));
      if (context.world.rank() == 1) got = own;
    });
    Numbers expected(sum.begin(), sum.begin() + own_rows * own_columns);
    if (shape.inputs)
      expected = product(p, product(p, expected, own_rank, own_rows, own_columns, true, false),
                         own_rows, own_rank, own_columns, false, false);
    if (shape.outputs)
      expected = product(product(expected, q, own_rows, own_columns, own_rank, false, true), q,
                         own_rows, own_rank, own_columns, false, false);
    for (std::size_t i = 0; i < sum.size(); ++i, ++compared)
      ASSERT_NEAR(got[i], i < expected.size() ? expected[i] : sum[i], 1e-12) << how << " " << i;
  }
  EXPECT_EQ(compared, 5 * bucket().range.count);
}

TrainOptions with_galore(TrainOptions options, const std::string& exchange) {
  options.optimizer = "galore";
  options.galore_rank = 4;
  options.galore_period = 3;
  options.learning_rate = 0.01;
  options.grad_clip = 0;
  options.steps = 5;  // whole gradients, two projections, whole ones, a projection
  options.exchange = exchange;
  return options;
}

// With the closed forms of steps of either kind.
void expect_equals_one_rank(Case one, const TrainOptions& alone) {
  const test::Folder folder;
  SCOPED_TRACE(one.name);
  TrainResult serial, result;
  const std::vector<double> expected = test::trained_weights(
      {"serial", 1, with_galore(alone, "none")}, folder.file("serial"), serial);
  one.options = with_galore(one.options, "galore");
  const std::vector<double> got = test::trained_weights(one, folder.file("ranks"), result);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-10) << i;
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    EXPECT_NEAR(result.steps[i].loss / serial.steps[i].loss, 1, 1e-10) << i;
    const double share = result.steps[i].grad_norm / serial.steps[i].grad_norm;
    if (i % 3 == 0)
      EXPECT_NEAR(share, 1, 1e-10) << i;
    else
      EXPECT_LT(share, 1 - 1e-3) << i;
  }
  for (const int steps : LOCKSTEP_THOROUGH ? std::vector{1, 2, 4, 5} : std::vector{2}) {
    one.options.steps = steps;
    EXPECT_TRUE(theory_holds(test::run(one.ranks, one.options))) << steps;
  }
}

TEST(ProjectedTraining, EqualsOneRank) {
  const std::vector<const char*> projections = {"full", "std", "reverse_std"};
  for (const char* projection : std::span(projections).first(LOCKSTEP_THOROUGH ? 3 : 1)) {
    Case ddp{fmt::format("ddp {}", projection), 3, test::few_steps("ddp")};
    ddp.options.galore_projection = projection;
    TrainOptions alone = test::few_steps("serial");
    alone.galore_projection = projection;
    expect_equals_one_rank(ddp, alone);
  }
  Case stages{"pipeline", 4, test::mesh(1, 2, 0)};
  expect_equals_one_rank(stages, test::few_steps("serial"));
  Case in_turns{"without overlap", 2, test::few_steps("ddp")};
  in_turns.options.overlap = false;
  expect_equals_one_rank(in_turns, test::few_steps("serial"));
}

TEST(ProjectedTraining, OfExpertsEqualsOneRank) {
  Case one{"moe", 4, test::run_with_experts("moe")};
  one.options.expert_ranks = 2;
  expect_equals_one_rank(one, test::run_with_experts("serial"));
}

TEST(ProjectedTraining, StepsInBackward) {
  const test::Folder folder;
  TrainOptions options = with_galore(test::few_steps("ddp"), "galore");
  options.micro_batches = 1;
  TrainResult result;
  const std::vector<double> expected =
      test::trained_weights({"at the end", 2, options}, folder.file("end"), result);
  options.optimizer_in_backward = true;
  const std::vector<double> got =
      test::trained_weights({"in backward", 2, options}, folder.file("backward"), result);
  EXPECT_TRUE(theory_holds(result));
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12) << i;
}

// In the middle of a period: with the same bits, and the closed forms of a run that begins there.
TEST(ProjectedTraining, ResumesWithTheSameBits) {
  const test::Folder folder;
  Case one{"ddp", 3, with_galore(test::few_steps("ddp"), "galore")};
  TrainResult whole, resumed;
  const std::vector<double> expected = test::trained_weights(one, folder.file("whole"), whole);
  test::save(one, folder.file("saved"));
  one.options.resume = folder.file("saved") + "/step-00000002";
  EXPECT_EQ(test::trained_weights(one, folder.file("resumed"), resumed), expected);
  EXPECT_TRUE(theory_holds(resumed));
}

// Peaks are exact without overlap. Only whole gradients take scratch: a run has it from its first whole step on.
TEST(ProjectedTraining, HoldsTheScratchOfWholeSteps) {
  const test::Folder folder;
  Case one{"ddp", 4, with_galore(test::few_steps("ddp"), "galore")};
  one.options.overlap = false;
  one.options.algorithm = "recursive_doubling";
  const auto held = [&](const TrainResult& result) {
    EXPECT_TRUE(theory_holds(result)) << one.options.steps;
    return result.ranks.front().peak_bytes.at("communication");
  };
  const auto with_whole_steps = held(test::run(4, one.options));
  one.options.checkpoint = folder.file("saved");
  one.options.checkpoint_interval = 4;
  held(test::run(4, one.options));
  one.options.checkpoint.clear();
  one.options.resume = folder.file("saved") + "/step-00000004";
  EXPECT_LT(held(test::run(4, one.options)), with_whole_steps);
  one.options.resume.clear();
  one.options.exchange_warm_up = 2;
  for (one.options.steps = 1; one.options.steps <= 5; ++one.options.steps)
    held(test::run(4, one.options));
}

TEST(ProjectedTraining, InSixteenBits) {
  TrainOptions options = with_galore(test::few_steps("ddp", DType::bf16), "galore");
  options.overlap = false;
  const TrainResult result = test::run(2, options);
  EXPECT_TRUE(theory_holds(result));
  EXPECT_LT(result.steps.back().loss, result.steps.front().loss);
  options.galore_period = 1;
  EXPECT_TRUE(theory_holds(test::run(2, options)));
}

// The facts' count: of 786,432 numbers of the blocks' matrices, 196,608 travel.
TEST(ProjectedTraining, SendsWhatIsProjected) {
  TrainOptions options;
  options.technique = "ddp";
  options.optimizer = "galore";
  options.galore_rank = 32;
  options.dtype = DType::f64;
  const auto sent = [&](const char* exchange) {
    options.exchange = exchange;
    options.algorithm = "ring";
    return predict(plan_of(options, 2), 0).traffic.at("gradients").sent_bytes;
  };
  EXPECT_EQ(sent("none") - sent("galore"), 8 * (786'432 - 196'608));
}

TEST(ProjectedTraining, RefusesPlansWithoutProjectors) {
  const auto refused = [](TrainOptions options, int ranks, const auto& change) {
    options = with_galore(options, "galore");
    change(options);
    return test::refusal(ranks, options);
  };
  const auto nothing = [](TrainOptions&) {};
  EXPECT_THAT(refused(test::few_steps("ddp"), 2, [](auto& o) { o.optimizer = "adamw"; }),
              HasSubstr("add --optimizer galore"));
  EXPECT_THAT(refused(test::few_steps("sp"), 2, nothing),
              HasSubstr("--exchange galore with --tp 2; ranks that split a matrix"));
  EXPECT_THAT(refused(test::few_steps("ddp"), 2,
                      [](auto& o) { o.galore_rank = gpt_config(o.model).width; }),
              HasSubstr("use a smaller rank"));
  EXPECT_THAT(refused(test::few_steps("fsdp"), 2, nothing), HasSubstr("with ZeRO stage 3"));
  EXPECT_THAT(refused(test::few_steps("ddp"), 2, [](auto& o) { o.local_steps = 2; }),
              HasSubstr("--local-steps"));
}

}  // namespace
}  // namespace lockstep
