// Presets: 3d with the defaults of known training runs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/predict/predict.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::golden_run;
using test::run;

class Presets : public testing::TestWithParam<const char*> {
 protected:
  static TrainOptions options() {
    TrainOptions options = golden_run(GetParam());
    technique(GetParam()).set_defaults(options);
    return options;
  }
};

TEST_P(Presets, ReproduceTheGoldenRun) {
  const TrainResult result = run(8, options());
  expect_golden(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  test::expect_same_weights(8, options());
}

// Nothing but the defaults differs from 3d.
TEST_P(Presets, ArePlansOf3d) {
  const Plan preset = plan_of(options(), 8);
  TrainOptions same = options();
  same.technique = "3d";
  const Plan whole = plan_of(same, 8);
  EXPECT_EQ(options_json(preset), options_json(whole));
  const Prediction expected = predict(whole, 5), predicted = predict(preset, 5);
  EXPECT_EQ(predicted.total, expected.total);
  EXPECT_EQ(predicted.traffic, expected.traffic);
}

INSTANTIATE_TEST_SUITE_P(Names, Presets, testing::Values("bloom-like", "megatron-like"),
                         [](const auto& test) { return std::string(test.param).substr(0, 5); });

TEST(PresetPlans, AreThoseOfTheTrainings) {
  const Plan bloom = plan_of(default_options("bloom-like"), 16);
  EXPECT_EQ(bloom.length(Axis::tp), 2);
  EXPECT_EQ(bloom.length(Axis::pp), 2);
  EXPECT_EQ(bloom.length(Axis::dp), 4);
  EXPECT_EQ(bloom.zero_stage(), 1);
  EXPECT_FALSE(bloom.split(0).by_sequence);
  EXPECT_EQ(bloom.schedule_name(), "1f1b");
  const Plan megatron = plan_of(default_options("megatron-like"), 8);
  EXPECT_EQ(megatron.length(Axis::dp), 2);
  EXPECT_EQ(megatron.zero_stage(), 1);
  EXPECT_TRUE(megatron.split(0).by_sequence);
  EXPECT_EQ(megatron.schedule_name(), "interleaved");
  EXPECT_EQ(megatron.schedule.stages, 4);
}

}  // namespace
}  // namespace lockstep
