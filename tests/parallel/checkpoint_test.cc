// Checkpoints: which elements ranks write and read, resumed trainings compared with uninterrupted
// ones, and damaged files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/narrow_backend.h"
#include "models/weights.h"
#include "parallel/checkpoint/convert.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/rank_model.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::golden_run;
using test::run;
namespace fs = std::filesystem;

struct Case {
  std::string name;
  int ranks;
  TrainOptions options;
};

TrainOptions few_steps(const std::string& technique, DType dtype = DType::f64) {
  TrainOptions options = golden_run(technique, dtype);
  options.steps = 4;
  options.micro_batches = 2;
  return options;
}

TrainOptions mesh(int tp, int pp, int zero, const std::string& schedule = "1f1b") {
  TrainOptions options = few_steps("3d");
  options.tensor_ranks = tp;
  options.pipeline_ranks = pp;
  options.schedule = schedule;
  options.zero_stage = zero;
  return options;
}

// Every way to hold a training's state.
std::vector<Case> cases() {
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

TrainResult save(const Case& one, const std::string& folder, int interval = 2) {
  TrainOptions options = one.options;
  options.checkpoint = folder;
  options.checkpoint_interval = interval;
  return run(one.ranks, options);
}
TrainResult resume(const Case& one, const std::string& folder) {
  TrainOptions options = one.options;
  options.resume = folder;
  return run(one.ranks, options);
}

void expect_same_end(const TrainResult& resumed, const TrainResult& whole, double tolerance) {
  ASSERT_EQ(resumed.steps.size() + 2, whole.steps.size());
  for (std::size_t i = 0; i < resumed.steps.size(); ++i) {
    const StepRecord &got = resumed.steps[i], &expected = whole.steps[i + 2];
    EXPECT_EQ(got.step, expected.step);
    EXPECT_NEAR(got.loss / expected.loss, 1, tolerance);
    EXPECT_NEAR(got.grad_norm / expected.grad_norm, 1, tolerance);
    EXPECT_EQ(got.loss_scale, expected.loss_scale);
  }
}

// The boxes of a range have the elements that the layout says, with their places, each once.
TEST(Boxes, AreTheElementsOfARange) {
  std::mt19937_64 random(7);
  int compared = 0;
  for (const Case& one : cases()) {
    if (one.options.technique == "ps") continue;
    const Plan plan = plan_of(one.options, one.ranks);
    const WholeBoxes whole = whole_boxes(plan.model);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const RankOutline outline(plan, rank);
      const Parameters& parameters = outline.parameters();
      for (int repetition = 0; repetition < (LOCKSTEP_THOROUGH ? 3 : 1); ++repetition) {
        const auto drawn = [&](Count most) { return static_cast<Count>(random() % most); };
        const Count first = drawn(parameters.count());
        const Range range{first, 1 + drawn(parameters.count() - first)};
        using Element = std::tuple<std::string_view, Count, Count>;  // name, in whole, in part
        std::vector<Element> expected, got;
        for (const Parameter& parameter : parameters.list()) {
          const Box& all = whole.at(parameter.whole_name());
          for_each_run(parameter.region, all.columns.count,
                       [&](const Region::Columns&, Count there, Count here, Count count) {
                         for (Count i = 0; i < count; ++i) {
                           const Count place = parameter.offset + here + i;
                           if (place >= range.first && place < range.first + range.count &&
                               there + i < all.count())
                             expected.emplace_back(parameter.whole_name(), there + i, place);
                         }
                       });
        }
        const std::vector<PlacedBox> boxes = boxes_of(parameters.list(), range, whole, nullptr);
        for (const PlacedBox& placed : boxes) {
          const Count columns = whole.at(placed.parameter).columns.count;
          for (Count row = 0; row < placed.box.rows.count; ++row)
            for (Count column = 0; column < placed.box.columns.count; ++column)
              got.emplace_back(
                  placed.parameter,
                  (placed.box.rows.first + row) * columns + placed.box.columns.first + column,
                  placed.place + row * placed.stride + column);
        }
        std::ranges::sort(expected);
        std::ranges::sort(got);
        ASSERT_EQ(got, expected) << one.name << " rank " << rank;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, LOCKSTEP_THOROUGH ? 80 : 25);
}

class Resume : public testing::TestWithParam<Case> {};

// Bit by bit: losses, norms, and all states at the end.
TEST_P(Resume, OfTheSamePlanHasTheSameBits) {
  Case one = GetParam();
  one.options.dropout = 0.1;
  const test::Folder folder;
  const TrainResult whole = save(one, folder.file("whole"));
  TrainOptions options = one.options;
  options.resume = folder.file("whole/step-00000002");
  options.checkpoint = folder.file("resumed");
  const TrainResult resumed = run(one.ranks, options);
  expect_same_end(resumed, whole, 0);
  EXPECT_TRUE(theory_holds(resumed));
  const CheckpointIndex a = read_index(folder.file("whole/step-00000004"));
  const CheckpointIndex b = read_index(folder.file("resumed/step-00000004"));
  ASSERT_EQ(a.files.size(), b.files.size());
  int compared = 0;
  for (std::size_t f = 0; f < a.files.size(); ++f)
    for (std::size_t t = 0; t < a.files[f].tensors.size(); ++t, ++compared)
      EXPECT_EQ(a.files[f].tensors[t].checksum, b.files[f].tensors[t].checksum)
          << a.files[f].tensors[t].tensor_name();
  EXPECT_GE(compared, 3 * 28);
}

// Each state of each element is written once, and each rank reads what it holds.
TEST_P(Resume, WritesAndReadsTheBytesOfTheClosedForms) {
  const Case& one = GetParam();
  const Plan plan = plan_of(one.options, one.ranks);
  const test::Folder folder;
  const TrainResult whole = save(one, folder.file("saved"));
  const Count psi = plan.model.parameter_count(), states = 3 * 8;  // f64
  ASSERT_EQ(whole.checkpoints.size(), 2U);
  EXPECT_EQ(whole.checkpoints.front().bytes, states * psi);
  const CheckpointIndex index = read_index(folder.file("saved/step-00000002"));
  const TrainResult resumed = resume(one, folder.file("saved/step-00000002"));
  ASSERT_TRUE(resumed.resumed.has_value());
  const std::vector<std::int64_t>& read = resumed.resumed->read_bytes;
  ASSERT_EQ(std::ssize(read), one.ranks);
  const std::int64_t sum = std::accumulate(read.begin(), read.end(), std::int64_t{0});
  // Of a split model, ends of the pipeline hold the token embedding twice, and tensor-parallel ranks
  // hold vectors that all of them need.
  if (one.name == "ddp") {
    EXPECT_THAT(read, testing::Each(states * psi));
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(index.files[rank].bytes, states * Parts(psi, 3)[rank]);
  } else if (one.name == "hsdp") {
    EXPECT_EQ(sum, 2 * states * psi);
  } else if (!plan.splits_model()) {
    EXPECT_EQ(sum, states * psi);
  } else {
    Count held = 0;
    for (int rank = 0; rank < plan.ranks; ++rank)
      if (plan.place(rank, Axis::dp) == 0) {
        const RankOutline outline(plan, rank);
        held += outline.parameters().count();
        const WholeBoxes boxes = whole_boxes(plan.model);
        for (const Parameter& parameter : outline.parameters().list()) {
          const Range rows = parameter.region.rows;
          const Count real = boxes.at(parameter.whole_name()).rows.count;
          held -= std::clamp<Count>(rows.first + rows.count - real, 0, rows.count) *
                  (parameter.count / rows.count);
        }
      }
    EXPECT_EQ(sum, states * held);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Resume, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// Every plan takes what every other wrote, and goes on as if nothing had been.
TEST(Checkpoints, OfAnyPlanAreTakenByAnyPlan) {
  const test::Folder folder;
  const TrainResult whole = run(1, few_steps("serial"));
  int pairs = 0;
  std::vector<Case> all = cases();
  all.push_back({"zb", 4, mesh(1, 2, 1, "zb-h1")});
  all.push_back({"interleaved", 4, mesh(1, 2, 3, "interleaved")});
  all.back().options.sharding = "per-parameter";
  for (const Case& from : all) {
    if (!LOCKSTEP_THOROUGH && from.ranks > 3) continue;
    save(from, folder.file(from.name));
    for (const Case& into : all) {
      if (!LOCKSTEP_THOROUGH && (pairs++ % 8) != 0) continue;
      SCOPED_TRACE(from.name + " to " + into.name);
      expect_same_end(resume(into, folder.file(from.name) + "/step-00000002"), whole, 1e-10);
      pairs += LOCKSTEP_THOROUGH;
    }
  }
  EXPECT_GE(pairs, 60);
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
    for (const State state : all_states) {
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
  EXPECT_THAT(with([](TrainOptions& o) { o.model = "nano"; }), HasSubstr("another model"));
  EXPECT_THAT(with([](TrainOptions& o) { o.steps = 2; }), HasSubstr("has taken 2 steps"));
  EXPECT_EQ(error_of(one, folder.file("nowhere")), folder.file("nowhere") + " is not a folder");
  fs::create_directory(folder.file("empty"));
  EXPECT_THAT(error_of(one, folder.file("empty")), HasSubstr("no checkpoint in"));
  // A folder with another run's checkpoints.
  EXPECT_THROW(save(one, folder.file("saved")), Error);
}

}  // namespace
}  // namespace lockstep
