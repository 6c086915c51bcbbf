// An optimizer that was added by a folder and a few lines trains under every plan: the same numbers
// as on one rank, the closed forms of its states, checkpoints that another plan takes.
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;

std::vector<Case> toy_cases() {
  std::vector<Case> all = test::cases();
  for (Case& one : all) one.options.optimizer = "softsign";
  return all;
}

TEST(ToyOptimizer, EqualsOneRankUnderEveryPlan) {
  const test::Folder folder;
  const std::vector<Case> all = toy_cases();
  TrainResult serial;
  const std::vector<double> expected =
      test::trained_weights(all[0], folder.file("serial.safetensors"), serial);
  TrainResult others;
  EXPECT_NE(test::trained_weights(test::cases()[0], folder.file("adamw.safetensors"), others),
            expected);
  int compared = 0;
  for (const Case& one : all) {
    if (one.ranks == 1) continue;
    test::expect_equals_serial(one, serial, expected, folder.file("other.safetensors"));
    ++compared;
  }
  EXPECT_EQ(compared, 11);
}

TEST(ToyOptimizer, ResumesUnderAnotherPlan) {
  const test::Folder folder;
  const std::vector<Case> all = toy_cases();
  const TrainResult whole = test::run(1, all[0].options);
  test::save(all[1], folder.file("ddp"));
  test::save(all[10], folder.file("mesh"));
  test::expect_same_end(test::resume(all[10], folder.file("ddp/step-00000002")), whole, 1e-10);
  test::expect_same_end(test::resume(all[1], folder.file("mesh/step-00000002")), whole, 1e-10);
}

}  // namespace
}  // namespace lockstep
