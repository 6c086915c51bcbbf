// Experts in files: saved weights and checkpoints have each expert under its number in the model,
// whichever ranks divide them. New memory holds NaNs.
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;

class ExpertFiles : public testing::Test {
 protected:
  ExpertFiles() { poison_host_memory(true); }
  ~ExpertFiles() override { poison_host_memory(false); }

  // Ways to hold experts and their training state; the first is one rank.
  static std::vector<Case> plans(DType dtype = DType::f64) {
    std::vector<Case> all;
    const auto add = [&](const char* name, int ranks, void (*set)(TrainOptions&)) {
      all.push_back({name, ranks, test::run_with_experts(ranks == 1 ? "serial" : "moe", dtype)});
      all.back().options.steps = 4;
      set(all.back().options);
    };
    add("one-rank", 1, [](TrainOptions&) {});
    add("ep2", 2, [](TrainOptions&) {});
    add("ep4-zero3", 4, [](TrainOptions& o) { o.zero_stage = 3; });
    add("ep2-zero1", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 1; });
    add("ep2-zero2", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 2; });
    add("ep2-pp2", 4, [](TrainOptions& o) { o.mesh_lengths[Axis::pp] = o.micro_batches = 2; });
    add("ep2-tp2", 4, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2; });
    return all;
  }

  test::Folder folder_;
};

TEST_F(ExpertFiles, SavedWeightsAreThoseOfOneRank) {
  const std::vector<Case> all = plans();
  TrainResult one;
  const std::vector<double> weights =
      test::trained_weights(all.front(), folder_.file("one.safetensors"), one);
  for (const Case& other : all)
    test::expect_equals_serial(other, one, weights, folder_.file("other.safetensors"));
}

TEST_F(ExpertFiles, CheckpointsGoOnWithAnyDivision) {
  const std::vector<Case> all = plans();
  const TrainResult whole = test::run(1, all.front().options);
  for (const Case& from : all) {
    if (!LOCKSTEP_THOROUGH && from.ranks > 2) continue;
    test::save(from, folder_.file(from.name));
    for (const Case& into : all) {
      if (!LOCKSTEP_THOROUGH && into.ranks > 2) continue;
      SCOPED_TRACE(from.name + " to " + into.name);
      test::expect_same_end(test::resume(into, folder_.file(from.name) + "/step-00000002"), whole,
                            1e-10);
    }
  }
}

// The weights that a pass reads are rounded again from the f32 ones of the file.
TEST_F(ExpertFiles, NarrowExpertsGoOnWithTheSameBits) {
  for (const Case& narrow : plans(DType::bf16)) {
    SCOPED_TRACE(narrow.name);
    const TrainResult whole = test::save(narrow, folder_.file(narrow.name));
    test::expect_same_end(test::resume(narrow, folder_.file(narrow.name) + "/step-00000002"), whole,
                          0);
  }
}

}  // namespace
}  // namespace lockstep
