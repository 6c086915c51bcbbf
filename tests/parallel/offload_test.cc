// Offload to a second tier: the same bits as without it, and traffic and memory by their closed
// forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/predict/predict.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::golden_run;
using test::refusal;
using test::run;

TrainOptions sharded(int stage, DType dtype = DType::f64) {
  TrainOptions options = golden_run("zero", dtype);
  options.zero_stage = stage;
  options.steps = LOCKSTEP_THOROUGH ? 3 : 2;
  return options;
}

// Which shards are offloaded, and to which tier.
struct OffloadCase {
  const char *what, *where;
};
constexpr OffloadCase offload_cases[] = {{"optimizer", "memory"},
                                         {"optimizer", "file"},
                                         {"parameters", "memory"},
                                         {"parameters", "file"}};

std::int64_t peak(const TrainResult& result, int rank, const std::string& use) {
  return result.ranks[static_cast<std::size_t>(rank)].peak_bytes.at(use);
}

class Offloaded : public testing::TestWithParam<int> {
 protected:
  // The final weights of a run, whose closed forms must hold.
  std::vector<double> weights(TrainOptions options) {
    options.save = folder_.file("weights.safetensors");
    result_ = run(GetParam(), options);
    EXPECT_TRUE(theory_holds(result_));
    return test::weights_of(options.save);
  }
  void expect_same_bits(TrainOptions options) {
    const std::vector<double> resident = weights(options);
    options.offload_group = 4096;
    for (const OffloadCase& one : offload_cases) {
      options.offload = one.what;
      options.offload_to = std::string(one.where) == "file" ? folder_.file("tier") : one.where;
      if (options.offload == "parameters" && options.technique == "zero" && options.zero_stage != 3)
        continue;
      SCOPED_TRACE(fmt::format("{} to {}", one.what, one.where));
      EXPECT_EQ(weights(options), resident);
      for (const RankRecord& rank : result_.ranks) EXPECT_GT(rank.offload.read_bytes, 0);
      // Its files have lost their names.
      for (const auto& entry : std::filesystem::directory_iterator(folder_.file(".")))
        EXPECT_FALSE(entry.path().filename().string().starts_with("tier")) << entry;
    }
  }

  const test::Folder folder_;
  TrainResult result_;
};

TEST_P(Offloaded, EveryStageHasTheSameBits) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_same_bits(sharded(stage));
  }
}

TEST_P(Offloaded, ExpertsHaveTheSameBits) {
  const bool divides = GetParam() % 2 == 0;
  TrainOptions options = test::run_with_experts(divides ? "moe" : "fsdp");
  if (divides) options.expert_ranks = 2, options.zero_stage = 3;
  options.steps = 2;
  expect_same_bits(options);
}

TEST_P(Offloaded, EveryTypeHasTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(dtype));
    expect_same_bits(sharded(1, dtype));
    expect_same_bits(sharded(3, dtype));
  }
}

TEST_P(Offloaded, MicroBatchesPrefetchAndNoOverlapHaveTheSameBits) {
  TrainOptions options = golden_run("fsdp", DType::f32);
  options.steps = 2;
  options.micro_batches = 2;
  options.global_batch = 2 * GetParam();
  options.validation_fraction = 0.2;
  for (const bool overlap : {true, false})
    for (const auto& [reshard, sharding] :
         {std::pair("yes", "flat"), {"no", "flat"}, {"yes", "per-parameter"}}) {
      if (!LOCKSTEP_THOROUGH && !overlap && sharding == std::string("flat")) continue;
      options.overlap = overlap;
      options.forward_prefetch = overlap;
      options.reshard_after_forward = reshard;
      options.sharding = sharding;
      SCOPED_TRACE(fmt::format("{} {} {}", overlap, reshard, sharding));
      expect_same_bits(options);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Offloaded,
                         testing::ValuesIn(LOCKSTEP_THOROUGH ? std::vector<int>{1, 2, 3}
                                                             : std::vector<int>{3}));

TEST(Offload, WorksUnderAPipelineAndTensorParallelism) {
  const test::Folder folder;
  for (const int stage : {1, 3}) {
    TrainOptions options = golden_run("3d");
    options.steps = 2;
    options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::pp] = 2;
    options.schedule = "interleaved";
    options.micro_batches = 2;
    options.zero_stage = stage;
    options.save = folder.file("weights.safetensors");
    run(8, options);
    const std::vector<double> resident = test::weights_of(options.save);
    options.offload = stage == 3 ? "parameters" : "optimizer";
    options.offload_to = folder.file("tier");
    const TrainResult result = run(8, options);
    EXPECT_TRUE(theory_holds(result));
    EXPECT_EQ(test::weights_of(options.save), resident);
  }
}

// A checkpoint of either kind of run is one of the other.
TEST(Offload, ARunContinuesAnothersCheckpoint) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const test::Folder folder;
    TrainOptions resident = golden_run("fsdp", dtype);
    resident.steps = 4;
    resident.offload_group = 4096;
    TrainOptions offloaded = resident;
    offloaded.offload = "parameters";
    offloaded.offload_to = folder.file("tier");
    const auto weights = [&](TrainOptions options) {
      options.save = folder.file("weights.safetensors");
      EXPECT_TRUE(theory_holds(run(2, options)));
      return test::weights_of(options.save);
    };
    const std::vector<double> uninterrupted = weights(resident);
    for (const bool writes_offloaded : {false, true}) {
      TrainOptions first = writes_offloaded ? offloaded : resident,
                   second = writes_offloaded ? resident : offloaded;
      first.checkpoint = second.resume = folder.file(writes_offloaded ? "a" : "b");
      first.steps = 2;
      run(2, first);
      EXPECT_EQ(weights(second), uninterrupted) << name_of(dtype) << writes_offloaded;
    }
  }
}

TEST(Offload, SkippedStepsMoveNothing) {
  TrainOptions options = golden_run("fsdp", DType::f16);
  options.loss_scaling = "megatron";  // its first scales overflow
  options.steps = 2;
  options.offload = "optimizer";
  const TrainResult result = run(2, options);
  ASSERT_TRUE(result.steps.back().skipped);
  EXPECT_EQ(result.ranks[0].offload, TierTraffic{});
  EXPECT_TRUE(theory_holds(result));
}

// The formulas written out, for a model whose shards are whole groups and blocks of a file.
TEST(Offload, TrafficAndMemoryEqualTheFormulas) {
  const test::Folder folder;
  TrainOptions options = golden_run("fsdp", DType::bf16);
  options.steps = 1;  // the first step moves as much as any other
  const Plan plan = plan_of(options, 2);
  const Count psi = plan.model.parameter_count();
  options.offload = "parameters";
  const TrainResult offloaded = run(2, options);
  std::int64_t read = 0, written = 0;
  for (const RankRecord& rank : offloaded.ranks) {
    read += rank.offload.read_bytes;
    written += rank.offload.written_bytes;
  }
  // Blocks are gathered twice, the root once.
  Count root = 0;
  for (const auto& [name, count] :
       std::map<std::string, Count>{{"wte", Count{plan.model.vocabulary} * plan.model.width},
                                    {"wpe", Count{plan.model.context} * plan.model.width},
                                    {"ln_f", Count{2} * plan.model.width}})
    root += count;
  EXPECT_EQ(read, 12 * psi + 2 * (2 * psi - root));
  EXPECT_EQ(written, 12 * psi + 2 * psi);

  TrainOptions resident = options;
  resident.offload = "none";
  const TrainResult whole = run(2, resident);
  for (const int rank : {0, 1}) {
    EXPECT_LT(peak(offloaded, rank, "optimizer"), peak(whole, rank, "optimizer"));
    EXPECT_LT(peak(offloaded, rank, "parameters"), peak(whole, rank, "parameters"));
  }
  options.offload_group = 4096;
  EXPECT_EQ(peak(run(2, options), 0, "optimizer"), 2 * 4096 * 12);
}

TEST(Offload, OptionsAreChecked) {
  TrainOptions options = sharded(2);
  options.offload = "parameters";
  EXPECT_THAT(refusal(2, options), testing::HasSubstr("use stage 3"));
  options.offload = "optimizer";
  options.offload_group = 1000;
  EXPECT_THAT(refusal(2, options), testing::HasSubstr("use a multiple of 4096"));
  options.offload_group = 4096;
  options.offload_to = "/no/such/folder/tier";
  EXPECT_THAT(refusal(2, options), testing::HasSubstr("cannot create /no/such/folder/tier."));
  options.offload_to = "";
  EXPECT_THAT(refusal(2, options), testing::HasSubstr("name a file"));
  options.offload = "disk";
  EXPECT_THAT(refusal(2, options), testing::HasSubstr("--offload"));
}

}  // namespace
}  // namespace lockstep
