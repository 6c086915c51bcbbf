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

// The plans of checkpoints, with SGD: its momentum is in `momentum`, none is kept for 0.
std::vector<Case> sgd_cases(double momentum) {
  std::vector<Case> all = test::cases();
  for (Case& one : all) {
    one.options.optimizer = "sgd";
    one.options.momentum = momentum;
    one.options.learning_rate = 0.05;
  }
  return all;
}

class Sgd : public testing::TestWithParam<double> {
 protected:
  std::vector<double> weights(const Case& one, TrainResult& result) {
    TrainOptions options = one.options;
    options.save = folder_.file("weights.safetensors");
    result = test::run(one.ranks, options);
    return test::weights_of(options.save);
  }
  const test::Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Momentum, Sgd, testing::Values(0.9, 0.0), [](const auto& test_info) {
  return std::string(test_info.param > 0 ? "kept" : "none");
});

TEST_P(Sgd, EqualsOneRankUnderEveryPlan) {
  const std::vector<Case> all = sgd_cases(GetParam());
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
  EXPECT_EQ(compared, 11);
  // The momentum changes the weights.
  Case other = all[0];
  other.options.momentum = 0.5;
  TrainResult ignored;
  EXPECT_NE(weights(other, ignored), expected);
}

// A checkpoint of each plan, taken by the next one.
TEST_P(Sgd, ResumesUnderAnotherPlan) {
  const std::vector<Case> all = sgd_cases(GetParam());
  const TrainResult whole = test::run(1, all[0].options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Case& next = all[(i + 1) % all.size()];
    SCOPED_TRACE(fmt::format("{}, then {}", all[i].name, next.name));
    const std::string folder = folder_.file(all[i].name);
    test::save(all[i], folder);
    test::expect_same_end(test::resume(next, folder + "/step-00000002"), whole, 1e-10);
  }
}

TEST_P(Sgd, WithSixteenBitsHasMasters) {
  Case one{"bf16", 2, test::few_steps("zero", DType::bf16)};
  one.options.optimizer = "sgd";
  one.options.momentum = GetParam();
  const TrainResult result = test::run(one.ranks, one.options);
  EXPECT_TRUE(theory_holds(result));
  const Count each = GetParam() > 0 ? 8 : 4;
  Count held = 0;
  for (const RankRecord& rank : result.ranks) held += rank.peak_bytes.at("optimizer");
  EXPECT_EQ(held, each * result.parameters);
}

TEST(OtherOptimizers, AreRefusedWhenResumed) {
  const test::Folder folder;
  const std::vector<Case> sgd = sgd_cases(0.9), plain = sgd_cases(0);
  const Case adamw = test::cases()[1];
  test::save(sgd[1], folder.file("sgd"));
  test::save(adamw, folder.file("adamw"));
  const auto refused = [&](Case one, const char* saved) {
    one.options.resume = folder.file(saved) + "/step-00000002";
    return test::refusal(one.ranks, one.options);
  };
  EXPECT_THAT(refused(adamw, "sgd"),
              HasSubstr("has the states of --optimizer sgd: value, momentum"));
  EXPECT_THAT(refused(plain[1], "sgd"), HasSubstr("has the states of --optimizer sgd"));
  EXPECT_THAT(refused(sgd[1], "adamw"),
              HasSubstr("--optimizer adamw: value, first_moment, second_moment"));
  TrainOptions unknown = test::few_steps("serial");
  unknown.optimizer = "adam";
  EXPECT_THAT(test::refusal(1, unknown), HasSubstr("--optimizer"));
}

}  // namespace
}  // namespace lockstep
