// A rank alone, without data, counts what it counts in a training run, and what the closed forms say.
#include "parallel/train/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "parallel/predict/predict.h"
#include "parallel/predict/workspace.h"
#include "parallel/rank/report.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::golden_run;
using testing::HasSubstr;

TrainResult dry(const Plan& plan, int rank, const LinkModel& links = {}) {
  TrainResult result;
  launch_alone({.ranks = plan.ranks, .fault = {}, .links = links, .device = &none_device()}, rank,
               [&](RankContext& context) { result = dry_run(context, plan); });
  return result;
}

// Every closed form that predict() states exactly, compared with what the rank has counted.
void expect_predicted(const Plan& plan, const TrainResult& result,
                      const Environment& environment = {}) {
  const RankRecord& rank = result.ranks.front();
  EXPECT_TRUE(theory_holds(result)) << rank.rank;
  const Prediction prediction = predict(plan, rank.rank, environment);
  EXPECT_EQ(rank.traffic, prediction.traffic) << rank.rank;
  for (int use = 0; use < memory_uses; ++use) {
    const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
    const std::string name(name_of(static_cast<MemoryUse>(use)));
    ASSERT_TRUE(figure.has_value()) << name;
    if (!figure->exact) continue;
    EXPECT_EQ(rank.peak_bytes.at(name), figure->value) << name;
  }
}

struct DryRunCase {
  const char* technique;
  int ranks;
  std::map<std::string, std::string> options = {};
};
void PrintTo(const DryRunCase& c, std::ostream* out) {
  *out << c.technique << " on " << c.ranks;
  for (const auto& [flag, value] : c.options) *out << " --" << flag << " " << value;
}

TrainOptions options_of(const DryRunCase& c, DType dtype = DType::f64) {
  TrainOptions options = golden_run(c.technique, dtype);
  options.steps = 2;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (const auto found = c.options.find(option.flag); found != c.options.end())
        set_from_text(option, found->second);
  return options;
}

class DryRun : public testing::TestWithParam<DryRunCase> {};

TEST_P(DryRun, CountsWhatATrainingRunCounts) {
  const TrainOptions options = options_of(GetParam());
  const Plan plan = plan_of(options, GetParam().ranks);
  const TrainResult trained = test::run(GetParam().ranks, options);
  ASSERT_EQ(std::ssize(trained.ranks), plan.ranks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const TrainResult result = dry(plan, rank);
    ASSERT_EQ(result.ranks.size(), 1U);
    const RankRecord &alone = result.ranks.front(),
                     &among_others = trained.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(alone.rank, rank);
    EXPECT_EQ(alone.traffic, among_others.traffic) << rank;
    EXPECT_EQ(alone.offload, among_others.offload) << rank;
    EXPECT_EQ(alone.in_flight, among_others.in_flight) << rank;
    for (const char* use : {"parameters", "gradients", "optimizer", "activations"})
      EXPECT_EQ(alone.peak_bytes.at(use), among_others.peak_bytes.at(use)) << use << " " << rank;
    if (!options.overlap) {
      EXPECT_EQ(alone.peak_bytes, among_others.peak_bytes) << rank;
    }
    expect_predicted(plan, result);
    EXPECT_TRUE(result.steps.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, DryRun,
    testing::Values(
        DryRunCase{"serial", 1},
        DryRunCase{"serial", 1, {{"micro-batches", "2"}, {"recompute", "full"}}},
        DryRunCase{"ddp", 3, {{"overlap", "false"}}},
        DryRunCase{"ddp", 4, {{"algorithm", "recursive_doubling"}, {"bucket-bytes", "5000"}}},
        DryRunCase{"zero", 4, {{"stage", "1"}, {"overlap", "false"}}},
        DryRunCase{"zero", 3, {{"stage", "2"}, {"micro-batches", "2"}}},
        DryRunCase{"zero", 4, {{"stage", "3"}, {"reduce-dtype", "f32"}}},
        DryRunCase{"fsdp", 4, {{"prefetch", "none"}}},
        DryRunCase{"fsdp", 4, {{"forward-prefetch", "true"}}},
        DryRunCase{"ddp", 2, {{"optimizer-in-backward", "true"}, {"grad-clip", "0"}}},
        DryRunCase{
            "zero", 2, {{"stage", "2"}, {"optimizer-in-backward", "true"}, {"grad-clip", "0"}}},
        DryRunCase{"fsdp", 4, {{"replicas", "2"}, {"overlap", "false"}}},
        DryRunCase{"fsdp", 2, {{"micro-batches", "2"}, {"accumulation", "no-sync"}}},
        DryRunCase{"zero", 4, {{"algorithm", "pairwise+bruck"}, {"overlap", "false"}}},
        DryRunCase{"zero", 2, {{"stage", "2"}, {"offload", "optimizer"}}},
        DryRunCase{"fsdp", 2, {{"offload", "parameters"}, {"offload-to", "tier_of_dry_run_test"}}},
        DryRunCase{"tp", 4, {{"micro-batches", "3"}}},
        DryRunCase{"sp", 2, {{"tp-overlap", "true"}}},
        DryRunCase{"pipeline", 2, {{"micro-batches", "4"}, {"schedule", "zb-h1"}}},
        DryRunCase{"pipeline", 2, {{"micro-batches", "2"}, {"recompute", "full"}}},
        DryRunCase{"3d", 8, {{"tp", "2"}, {"pp", "2"}, {"micro-batches", "2"}}},
        DryRunCase{"3d", 8, {{"tp", "2"}, {"pp", "2"}, {"micro-batches", "2"}, {"zero", "1"}}},
        DryRunCase{"3d",
                   8,
                   {{"tp", "2"},
                    {"pp", "2"},
                    {"micro-batches", "2"},
                    {"zero", "2"},
                    {"schedule", "zb-h1"}}},
        DryRunCase{"3d",
                   8,
                   {{"tp", "2"},
                    {"pp", "2"},
                    {"micro-batches", "2"},
                    {"zero", "3"},
                    {"sequence-parallel", "true"},
                    {"schedule", "interleaved"}}},
        DryRunCase{
            "3d", 8, {{"pp", "2"}, {"micro-batches", "2"}, {"zero", "3"}, {"replicas", "2"}}}),
    [](const auto& test) { return std::to_string(test.index); });

// 16-bit data need a workspace, which predict() finds by itself.
TEST(DryRunOfSixteenBits, HasThePredictedWorkspace) {
  const Plan sharded = plan_of(options_of({"fsdp", 2}, DType::bf16), 2);
  expect_predicted(sharded, dry(sharded, 1));

  TrainOptions options = options_of({"ddp", 2, {{"model", "gpt2"}}}, DType::bf16);
  options.init.clear();
  const Plan plan = plan_of(options, 2);
  const TrainResult result = dry(plan, 1);
  const Count workspace = result.ranks.front().peak_bytes.at("workspace");
  EXPECT_GT(workspace, 0);
  expect_predicted(plan, result);
  // Whatever this processor can do.
  EXPECT_EQ(workspace, narrow_workspace_bytes(plan, 1, true));
  EXPECT_LT(workspace, narrow_workspace_bytes(plan, 1, false));
}

TEST(DryRunOfALargePlan, EqualsItsClosedForms) {
  DryRunCase large{"3d",
                   16384,
                   {{"model", "gpt3"},
                    {"tp", "8"},
                    {"pp", "16"},
                    {"micro-batches", "12"},
                    {"global-batch", "1536"},
                    {"sequence-length", "2048"},
                    {"sequence-parallel", "true"}}};
  for (const char* zero : {"0", "1", "3"}) {
    large.options["zero"] = zero;
    TrainOptions options = options_of(large, DType::bf16);
    options.init.clear();
    const Plan plan = plan_of(options, large.ranks);
    for (const int rank : {0, 777, 16383}) expect_predicted(plan, dry(plan, rank));
  }
}

// With nodes, `auto` chooses by bucket or by exchange of a unit, and the closed forms follow its
// choices. Replicas of shards have nodes of their own: their ranks are not neighbours.
// A rank alone takes all others to choose like itself.
TEST(DryRunOfExperts, SendsWhatExpertsInTurnGet) {
  const auto options = [](void (*set)(TrainOptions&)) {
    TrainOptions run = test::run_with_experts("moe");
    run.steps = 2;
    set(run);
    return run;
  };
  for (const auto& [ranks, set] : std::vector<std::pair<int, void (*)(TrainOptions&)>>{
           {4, [](TrainOptions&) {}},
           {8, [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 1, o.recompute = "full"; }},
           {8, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true; }},
           {8, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::cp] = 2; }},
           {4, [](TrainOptions& o) { o.token_dispatcher = "two_level"; }}}) {
    const Plan plan = plan_of(options(set), ranks);
    for (const int rank : {0, ranks - 1}) {
      constexpr int of_node = 2;
      const TrainResult result = dry(plan, rank, {.ranks_per_node = of_node});
      Environment environment;
      environment.expert_ranks_per_node = of_node;
      expect_predicted(plan, result, environment);
      if (plan.options.token_dispatcher != "all_to_all") continue;
      EXPECT_GT(result.ranks.front().traffic.at("combine forward").sent_bytes, 0);
    }
  }
}

TEST(DryRunOnNodes, FollowsTheChoicesOfAuto) {
  for (const std::map<std::string, std::string>& options :
       {std::map<std::string, std::string>{{"algorithm", "auto"}},
        {{"algorithm", "auto"}, {"stage", "2"}},
        {{"algorithm", "auto"}, {"stage", "1"}, {"zero-volume", "all-reduce"}},
        {{"algorithm", "auto"}, {"stage", "3"}, {"replicas", "4"}},
        {{"algorithm", "hierarchical+ring"}, {"stage", "2"}, {"zero-volume", "all-reduce"}},
        {{"algorithm", "hierarchical+ring"}, {"stage", "3"}, {"replicas", "4"}}}) {
    const char* technique = options.contains("stage") ? "zero" : "ddp";
    const Plan plan = plan_of(options_of({technique, 8, options}), 8);
    const TrainResult result = dry(plan, 3, parse_links("alpha=1us,beta=1GB/s,node=4"));
    EXPECT_TRUE(theory_holds(result));
    EXPECT_TRUE(std::ranges::count(result.theory, "sent_messages", &TheoryRecord::quantity));
    EXPECT_GT(result.ranks.front().traffic.at("gradients").sent_bytes, 0);
  }
}

TEST(DryRunOfParameterServers, IsRefused) {
  const Plan plan = plan_of(options_of({"ps", 3}), 3);
  try {
    dry(plan, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("parameter servers have no dry run"));
  }
}

}  // namespace
}  // namespace lockstep
