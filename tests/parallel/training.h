// Shared by tests of training: the reference run in float64, and comparisons with it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/gpt/safetensors.h"
#include "parallel/train/trainer.h"
#include "tests/golden/golden.h"

namespace lockstep::test {

inline const std::string golden = golden_folder();

// The variants of a plan to run: all; with sanitizers, to which most of them show the same code,
// every third.
template <typename Case>
auto sampled(std::vector<Case> cases) {
  std::vector<Case> chosen;
  for (std::size_t i = 0; i < cases.size(); i += LOCKSTEP_THOROUGH ? 1 : 3)
    chosen.push_back(std::move(cases[i]));
  return testing::ValuesIn(chosen);
}

inline TrainOptions golden_run(const std::string& technique, DType dtype = DType::f64) {
  TrainOptions options;
  options.technique = technique;
  options.model = golden + "/config.json";
  options.init = golden + "/init.safetensors";
  options.data = golden + "/tokens.bin";
  options.order = "sequential";
  options.global_batch = 8;
  // With sanitizers a few steps suffice.
  options.steps = LOCKSTEP_THOROUGH ? 10 : 3;
  options.dtype = dtype;
  options.threads = 1;
  return options;
}

// The same for the reference run of a model with experts.
inline TrainOptions run_with_experts(const std::string& technique, DType dtype = DType::f64) {
  TrainOptions options = golden_run(technique, dtype);
  options.model = golden + "_moe/config.json";
  options.init = golden + "_moe/init.safetensors";
  options.data = golden + "_moe/tokens.bin";
  options.sequence_length = 32;
  return options;
}

inline TrainResult run(const LaunchOptions& world, const TrainOptions& options) {
  TrainResult result;
  const Plan plan = plan_of(options, launch_ranks(world));
  launch(world, [&](RankContext& context) {
    TrainResult mine = train(context, plan);
    if (context.world.rank() == 0) result = std::move(mine);
  });
  return result;
}

inline TrainResult run(int ranks, const TrainOptions& options) {
  return run({.ranks = ranks, .timeout_s = 30, .fault = {}}, options);
}

// The error that refuses such a run; "accepted" if none does.
inline std::string refusal(int ranks, const TrainOptions& options) {
  try {
    run(ranks, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    return error.what();
  }
  return "accepted";
}

inline void expect_golden(const TrainResult& result, double tolerance) {
  const auto expected = nlohmann::json::parse(std::ifstream(golden + "/expected.json"));
  ASSERT_FALSE(result.steps.empty());
  for (const StepRecord& step : result.steps) {
    EXPECT_NEAR(step.loss / expected["losses"][step.step].get<double>(), 1, tolerance);
    EXPECT_NEAR(step.grad_norm / expected["grad_norms"][step.step].get<double>(), 1, tolerance);
  }
}

inline void expect_golden_experts(const TrainResult& result, double tolerance) {
  const auto expected = nlohmann::json::parse(std::ifstream(golden + "_moe/expected.json"));
  ASSERT_FALSE(result.steps.empty());
  for (const StepRecord& step : result.steps) {
    EXPECT_NEAR(step.loss / expected["losses"][step.step].get<double>(), 1, tolerance);
    EXPECT_NEAR(step.grad_norm / expected["grad_norms"][step.step].get<double>(), 1, tolerance);
    EXPECT_NEAR(step.aux_loss.value() / expected["aux_losses"][step.step].get<double>(), 1,
                tolerance);
    EXPECT_EQ(nlohmann::json(step.tokens_of_experts), expected["tokens_of_experts"][step.step]);
  }
}

inline void expect_same_steps(const TrainResult& result, const TrainResult& expected,
                              double tolerance) {
  ASSERT_EQ(result.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_NEAR(result.steps[i].loss / expected.steps[i].loss, 1, tolerance) << i;
    EXPECT_NEAR(result.steps[i].grad_norm / expected.steps[i].grad_norm, 1, tolerance) << i;
  }
}

inline std::vector<double> weights_of(const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<double> all;
  for (const TensorEntry& tensor : file.tensors()) {
    std::vector<double> values(static_cast<std::size_t>(tensor.count()));
    file.read(tensor, host_slice(std::span(values)));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// A folder for the files of one test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The final weights of both runs are equal within 1e-10.
inline void expect_same_weights(int ranks, TrainOptions options) {
  const Folder folder;
  TrainOptions serial = golden_run("serial");
  serial.steps = options.steps;
  serial.save = folder.file("serial.safetensors");
  options.save = folder.file("other.safetensors");
  run(1, serial);
  run(ranks, options);
  const auto expected = weights_of(serial.save), got = weights_of(options.save);
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-10 * std::max(1.0, std::abs(expected[i]))) << i;
}

}  // namespace lockstep::test
