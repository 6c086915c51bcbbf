// Every optimizer under every plan: the same numbers as on one rank, the closed forms of its states,
// and checkpoints that any plan takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "parallel/predict/predict.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using testing::HasSubstr;

// The plans of checkpoints that take an optimizer.
std::vector<Case> cases_with(const OptimizerOptions& optimizer) {
  std::vector<Case> all = test::cases();
  for (Case& one : all) static_cast<OptimizerOptions&>(one.options) = optimizer;
  if (needs_whole_matrices(optimizer.optimizer))
    std::erase_if(all, [](const Case& one) {
      return one.options.technique == "ps" || one.options.offload != "none";
    });
  return all;
}

// SGD, whose momentum is in `momentum`; none is kept for 0.
OptimizerOptions sgd(double momentum) {
  OptimizerOptions options;
  options.optimizer = "sgd";
  options.momentum = momentum;
  options.learning_rate = 0.05;
  return options;
}

OptimizerOptions muon() {
  OptimizerOptions options;
  options.optimizer = "muon";
  return options;
}

// Its subspaces change in the middle of a run, and a checkpoint of step 2 is inside of a period.
OptimizerOptions galore(const std::string& projection) {
  OptimizerOptions options;
  options.optimizer = "galore";
  options.galore_rank = 4;
  options.galore_period = 3;
  options.galore_projection = projection;
  options.learning_rate = 0.01;
  return options;
}

struct OptimizerCase {
  std::string name;
  OptimizerOptions options;
  int plans;                          // besides one rank
  void (*change)(OptimizerOptions&);  // an option of its own
};
void PrintTo(const OptimizerCase& one, std::ostream* out) { *out << one.name; }

class OtherOptimizer : public testing::TestWithParam<OptimizerCase> {
 protected:
  std::vector<double> weights(const Case& one, TrainResult& result) {
    TrainOptions options = one.options;
    options.save = folder_.file("weights.safetensors");
    result = test::run(one.ranks, options);
    return test::weights_of(options.save);
  }
  const test::Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(
    , OtherOptimizer,
    testing::Values(OptimizerCase{"sgd", sgd(0.9), 11, [](auto& o) { o.momentum = 0.5; }},
                    OptimizerCase{"plain_sgd", sgd(0), 11, [](auto& o) { o.momentum = 0.5; }},
                    OptimizerCase{"muon", muon(), 8, [](auto& o) { o.muon_momentum = 0.5; }},
                    OptimizerCase{"galore", galore("std"), 8, [](auto& o) { o.galore_period = 2; }},
                    OptimizerCase{"galore_reverse", galore("reverse_std"), 8,
                                  [](auto& o) { o.galore_rank = 3; }},
                    OptimizerCase{"galore_full", galore("full"), 8,
                                  [](auto& o) { o.galore_scale = 0.5; }}),
    [](const auto& test_info) { return test_info.param.name; });

TEST_P(OtherOptimizer, EqualsOneRankUnderEveryPlan) {
  const std::vector<Case> all = cases_with(GetParam().options);
  TrainResult serial;
  const std::vector<double> expected = weights(all[0], serial);
  EXPECT_TRUE(theory_holds(serial));
  int compared = 0;
  for (const Case& one : all) {
    if (one.ranks == 1) continue;
    SCOPED_TRACE(one.name);
    TrainResult result;
    const std::vector<double> got = weights(one, result);
    test::expect_same_steps(result, serial, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    ASSERT_EQ(got.size(), expected.size());
    double furthest = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      furthest = std::max(furthest, std::abs(got[i] - expected[i]));
    EXPECT_LT(furthest, 1e-10);
    ++compared;
  }
  EXPECT_EQ(compared, GetParam().plans);
  // The option changes the weights.
  Case other = all[0];
  GetParam().change(other.options);
  TrainResult ignored;
  EXPECT_NE(weights(other, ignored), expected);
}

// A checkpoint of each plan, taken by the next one.
TEST_P(OtherOptimizer, ResumesUnderAnotherPlan) {
  const std::vector<Case> all = cases_with(GetParam().options);
  const TrainResult whole = test::run(1, all[0].options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Case& next = all[(i + 1) % all.size()];
    SCOPED_TRACE(fmt::format("{}, then {}", all[i].name, next.name));
    const std::string folder = folder_.file(all[i].name);
    test::save(all[i], folder);
    test::expect_same_end(test::resume(next, folder + "/step-00000002"), whole, 1e-10);
  }
}

TEST(SixteenBits, HaveMasters) {
  for (const double momentum : {0.9, 0.0}) {
    Case one{"bf16", 2, test::few_steps("zero", DType::bf16)};
    static_cast<OptimizerOptions&>(one.options) = sgd(momentum);
    const TrainResult result = test::run(one.ranks, one.options);
    EXPECT_TRUE(theory_holds(result));
    const Count each = momentum > 0 ? 8 : 4;
    Count held = 0;
    for (const RankRecord& rank : result.ranks) held += rank.peak_bytes.at("optimizer");
    EXPECT_EQ(held, each * result.parameters);
  }
}

TEST(OtherOptimizers, AreRefusedWhenResumed) {
  const test::Folder folder;
  const Case with_momentum = cases_with(sgd(0.9))[1], plain = cases_with(sgd(0))[1],
             adamw = test::cases()[1], orthogonal = cases_with(muon())[1];
  test::save(with_momentum, folder.file("sgd"));
  test::save(adamw, folder.file("adamw"));
  const auto refused = [&](Case one, const char* saved) {
    one.options.resume = folder.file(saved) + "/step-00000002";
    return test::refusal(one.ranks, one.options);
  };
  EXPECT_THAT(refused(adamw, "sgd"),
              HasSubstr("has the states of --optimizer sgd: value, momentum"));
  EXPECT_THAT(refused(plain, "sgd"), HasSubstr("has the states of --optimizer sgd"));
  EXPECT_THAT(refused(with_momentum, "adamw"),
              HasSubstr("--optimizer adamw: value, first_moment, second_moment"));
  EXPECT_THAT(refused(orthogonal, "adamw"), HasSubstr("has the states of --optimizer adamw"));
  TrainOptions unknown = test::few_steps("serial");
  unknown.optimizer = "adam";
  EXPECT_THAT(test::refusal(1, unknown), HasSubstr("--optimizer"));
}

}  // namespace
}  // namespace lockstep
