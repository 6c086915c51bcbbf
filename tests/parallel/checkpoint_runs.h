// Shared by tests of checkpoints: plans that hold the training state in every way, and their runs.
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/training.h"

namespace lockstep::test {

struct Case {
  std::string name;
  int ranks;
  TrainOptions options;
};

inline TrainOptions few_steps(const std::string& technique, DType dtype = DType::f64) {
  TrainOptions options = golden_run(technique, dtype);
  options.steps = 4;
  options.micro_batches = 2;
  return options;
}

inline TrainOptions mesh(int tp, int pp, int zero, const std::string& schedule = "1f1b") {
  TrainOptions options = few_steps("3d");
  options.mesh_lengths[Axis::tp] = tp;
  options.mesh_lengths[Axis::pp] = pp;
  options.schedule = schedule;
  options.zero_stage = zero;
  return options;
}

// Every way to hold the training state.
inline std::vector<Case> cases() {
  std::vector<Case> all = {{"serial", 1, few_steps("serial")},
                           {"ddp", 3, few_steps("ddp")},
                           {"zero1", 3, few_steps("zero")},
                           {"fsdp", 4, few_steps("fsdp")},
                           {"hsdp", 4, few_steps("fsdp")},
                           {"ps", 3, few_steps("ps")},
                           {"colocated", 2, few_steps("ps")},
                           {"tp", 2, few_steps("tp")},
                           {"pipeline", 2, few_steps("pipeline")},
                           {"offload", 2, few_steps("fsdp")},
                           {"mesh", 8, mesh(2, 2, 2)},
                           {"rows", 3, few_steps("fsdp")}};
  all[2].options.zero_stage = 1;
  all[4].options.replicas = 2;
  all[6].options.colocated = true;
  all[11].options.sharding = "per-parameter";
  // In groups that end inside of parameters.
  all[9].options.offload = "parameters";
  all[9].options.offload_group = 4096;
  // Rows of padding in the embedding.
  all[7].options.vocabulary_multiple = 48;
  all[7].options.sequence_parallel = true;
  return all;
}

inline TrainResult save(const Case& one, const std::string& folder, int interval = 2) {
  TrainOptions options = one.options;
  options.checkpoint = folder;
  options.checkpoint_interval = interval;
  return run(one.ranks, options);
}
inline TrainResult resume(const Case& one, const std::string& folder) {
  TrainOptions options = one.options;
  options.resume = folder;
  return run(one.ranks, options);
}

// The weights of a case after its last step; `path` is a file to write.
inline std::vector<double> trained_weights(const Case& one, const std::string& path,
                                           TrainResult& result) {
  TrainOptions options = one.options;
  options.save = path;
  result = run(one.ranks, options);
  return weights_of(path);
}

// A case has the losses, norms and final weights of one rank, and all closed forms hold.
inline void expect_equals_serial(const Case& one, const TrainResult& serial,
                                 const std::vector<double>& weights, const std::string& path) {
  SCOPED_TRACE(one.name);
  TrainResult result;
  const std::vector<double> got = trained_weights(one, path, result);
  expect_same_steps(result, serial, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  ASSERT_EQ(got.size(), weights.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], weights[i], 1e-10);
}

inline void expect_same_end(const TrainResult& resumed, const TrainResult& whole,
                            double tolerance) {
  ASSERT_EQ(resumed.steps.size() + 2, whole.steps.size());
  for (std::size_t i = 0; i < resumed.steps.size(); ++i) {
    const StepRecord &got = resumed.steps[i], &expected = whole.steps[i + 2];
    EXPECT_EQ(got.step, expected.step);
    EXPECT_NEAR(got.loss / expected.loss, 1, tolerance);
    EXPECT_NEAR(got.grad_norm / expected.grad_norm, 1, tolerance);
    EXPECT_EQ(got.loss_scale, expected.loss_scale);
  }
}

}  // namespace lockstep::test
