// Checkpoints from which another plan resumes, in a different type, with loss scalers and
// asynchronous modes; and those of different runs, which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/checkpoint/convert.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/folder.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using test::cases;
using test::expect_same_end;
using test::few_steps;
using test::mesh;
using test::resume;
using test::run;
using test::save;
namespace fs = std::filesystem;

// A plan takes what others wrote, and goes on as if nothing had been. Each of 14 takes every third one's,
// beginning elsewhere; the fuzzer draws other pairs.
TEST(Checkpoints, OfAnyPlanAreTakenByAnyPlan) {
  const test::Folder folder;
  const TrainResult whole = run(1, few_steps("serial"));
  int pairs = 0, taken = 0;
  std::vector<Case> all = cases();
  all.push_back({"zb", 4, mesh(1, 2, 1, "zb-h1")});
  all.push_back({"interleaved", 4, mesh(1, 2, 3, "interleaved")});
  all.back().options.sharding = "per-parameter";
  for (const Case& from : all) {
    if (!LOCKSTEP_THOROUGH && from.ranks > 3) continue;
    save(from, folder.file(from.name));
    for (const Case& into : all) {
      if (pairs++ % (LOCKSTEP_THOROUGH ? 3 : 13) != 0) continue;
      ++taken;
      SCOPED_TRACE(from.name + " to " + into.name);
      expect_same_end(resume(into, folder.file(from.name) + "/step-00000002"), whole, 1e-10);
    }
  }
  EXPECT_GE(taken, LOCKSTEP_THOROUGH ? 60 : 9);
}

// The f32 copies of 16-bit weights are taken exactly, also by f64; f64 rounds to f32 once.
TEST(Checkpoints, GoToOtherTypes) {
  const test::Folder folder;
  Case narrow{"bf16", 2, few_steps("zero", DType::bf16)};
  save(narrow, folder.file("bf16"));
  const std::string saved = folder.file("bf16/step-00000004");
  const CheckpointIndex index = read_index(saved);
  convert_checkpoint(saved, index, folder.file("f64"), 3, DType::f64);
  const CheckpointIndex wide = read_index(folder.file("f64"));
  EXPECT_EQ(wide.files.size(), 3U);
  EXPECT_EQ(wide.bytes(), 2 * index.bytes());
  CheckpointReader from(saved, index), into(folder.file("f64"), wide);
  int compared = 0;
  for (const auto& [name, box] : whole_boxes(index.model))
    for (const std::string_view state : index.states) {
      std::vector<double> a(static_cast<std::size_t>(box.count())), b(a.size());
      from.read(name, state, box, host_slice(std::span(a)));
      into.read(name, state, box, host_slice(std::span(b)));
      EXPECT_EQ(a, b) << name;
      compared += a != std::vector<double>(a.size());
    }
  EXPECT_GE(compared, 3 * 28 - 3);
  // bf16 goes on with the same bits after a detour through f64.
  for (TrainOptions* options : {&narrow.options}) options->steps = 6;
  const TrainResult whole = run(2, narrow.options);
  const TrainResult resumed = resume(narrow, folder.file("f64"));
  ASSERT_EQ(resumed.steps.size(), 2U);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(resumed.steps[i].loss, whole.steps[4 + i].loss);
}

// A rank's overflow lowers the scale of all ranks; the scale and its counters go on.
TEST(Checkpoints, KeepTheLossScaler) {
  for (const char* rule : {"torch", "megatron", "deepspeed"}) {
    const test::Folder folder;
    TrainOptions options = few_steps("ddp", DType::f16);
    options.loss_scaling = rule;
    options.steps = 6;
    options.checkpoint = folder.file("saved");
    options.checkpoint_interval = 3;
    const FaultPlan nan{.rank = 1, .operation = 6, .kind = FaultKind::nan};
    const TrainResult whole = run({.ranks = 2, .timeout_s = 30, .fault = nan}, options);
    const auto before = std::span(whole.steps).first(3);
    EXPECT_TRUE(std::ranges::any_of(before, &StepRecord::skipped)) << rule;
    options.checkpoint.clear();
    options.resume = folder.file("saved/step-00000003");
    const TrainResult resumed = run(2, options);
    ASSERT_EQ(resumed.steps.size(), 3U);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(resumed.steps[i].loss_scale, whole.steps[3 + i].loss_scale) << rule;
      EXPECT_EQ(resumed.steps[i].loss, whole.steps[3 + i].loss) << rule;
      EXPECT_EQ(resumed.steps[i].skipped, whole.steps[3 + i].skipped) << rule;
    }
  }
}

// A different rule begins with its first scale, and the run says so. Without scaling there is
// nothing to say.
TEST(Checkpoints, SayThatAnotherRuleOfLossScalingBegins) {
  const test::Folder folder;
  TrainOptions options = few_steps("ddp", DType::f16);
  options.steps = 2;
  options.checkpoint = folder.file("saved");
  run(2, options);
  options.checkpoint.clear();
  options.resume = folder.file("saved");
  options.steps = 3;
  const auto said = [&](const std::string& rule) {
    options.loss_scaling = rule;
    testing::internal::CaptureStderr();
    const TrainResult result = run(2, options);
    EXPECT_EQ(result.steps.front().loss_scale, rule == "megatron" ? 0x1p32
                                               : rule == "none"   ? 1
                                                                  : 0x1p16);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said("torch"), "");
  EXPECT_THAT(said("megatron"),
              testing::HasSubstr("was written with --loss-scaling torch: that of megatron begins "
                                 "with its first scale, 4294967296"));
  EXPECT_EQ(said("none"), "");
}

// With one worker nothing depends on who comes first: the steps, their learning rates and their data
// go on where they were.
TEST(Checkpoints, OfAsynchronousModesGoOnAtTheirEnd) {
  for (const char* mode : {"ssp", "asp"})
    for (const int ranks : {2, 4}) {
      const test::Folder folder;
      TrainOptions options = few_steps("ps");
      options.mode = mode;
      options.warmup_steps = 5;
      options.steps = 6;
      const TrainResult whole = run(ranks, options);
      options.checkpoint = folder.file("saved");
      options.steps = 3;
      run(ranks, options);
      options.checkpoint.clear();
      options.resume = folder.file("saved");
      options.steps = 6;
      const TrainResult resumed = run(ranks, options);
      EXPECT_TRUE(theory_holds(resumed));
      ASSERT_EQ(resumed.steps.size(), 3U);
      ASSERT_EQ(std::ssize(resumed.updates), 3 * (ranks - 1));
      for (const UpdateRecord& update : resumed.updates) {
        EXPECT_GE(update.step, 3);
        EXPECT_TRUE(std::isfinite(update.loss));
      }
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(resumed.steps[i].step, whole.steps[3 + i].step);
        if (ranks == 2) {
          EXPECT_EQ(resumed.steps[i].loss, whole.steps[3 + i].loss);
        }
      }
      options.checkpoint = folder.file("other");
      options.checkpoint_interval = 1;
      EXPECT_THROW(run(ranks, options), Error);
    }
}

TEST(Checkpoints, WrittenInTheBackgroundAreTheSame) {
  const test::Folder folder;
  for (Case one : cases()) {
    if (!LOCKSTEP_THOROUGH && one.ranks != 2) continue;
    save(one, folder.file(one.name), 1);
    one.options.checkpoint_async = true;
    one.options.keep = 2;
    const TrainResult result = save(one, folder.file(one.name + "-async"), 1);
    EXPECT_EQ(result.checkpoints.size(), 4U) << one.name;
    EXPECT_EQ(find_checkpoints(folder.file(one.name + "-async")).size(), 2U);
    for (const char* step : {"/step-00000003/", "/step-00000004/"})
      for (const StoredFile& file : read_index(folder.file(one.name) + step).files)
        EXPECT_EQ(read_text(folder.file(one.name) + step + file.name, 1 << 30),
                  read_text(folder.file(one.name + "-async") + step + file.name, 1 << 30));
  }
}

std::string error_of(const Case& one, const std::string& folder) {
  try {
    resume(one, folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
    return error.message();
  }
  return "none";
}

TEST(Checkpoints, OfAnotherTrainingAreRefused) {
  const test::Folder folder;
  Case one{"ddp", 2, few_steps("ddp")};
  save(one, folder.file("saved"));
  const std::string saved = folder.file("saved/step-00000002");
  const auto with = [&](auto change) {
    Case other = one;
    change(other.options);
    return error_of(other, saved);
  };
  using testing::HasSubstr;
  EXPECT_THAT(with([](TrainOptions& o) { o.seed = 2; }), HasSubstr("--seed 1"));
  EXPECT_THAT(with([](TrainOptions& o) { o.order = "random"; }), HasSubstr("--order sequential"));
  EXPECT_THAT(with([](TrainOptions& o) { o.global_batch = 4; }), HasSubstr("--global-batch 8"));
  EXPECT_THAT(with([](TrainOptions& o) { o.sequence_length = 8; }), HasSubstr("--sequence-length"));
  EXPECT_THAT(with([](TrainOptions& o) { o.data = test::golden + "/config.json"; }),
              HasSubstr("--data"));
  EXPECT_THAT(with([](TrainOptions& o) { o.model = "nano"; }), HasSubstr("different model"));
  EXPECT_THAT(with([](TrainOptions& o) { o.steps = 2; }), HasSubstr("is already at step 2"));
  EXPECT_EQ(error_of(one, folder.file("nowhere")), folder.file("nowhere") + " is not a folder");
  fs::create_directory(folder.file("empty"));
  EXPECT_THAT(error_of(one, folder.file("empty")), HasSubstr("no checkpoint in"));
  // A folder with another run's checkpoints.
  EXPECT_THROW(save(one, folder.file("saved")), Error);
}

}  // namespace
}  // namespace lockstep
