// Searches, files of many plans, and scores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "parallel/planner/quick_step.h"
#include "parallel/planner/score.h"
#include "parallel/planner/search.h"
#include "tests/parallel/planner_cases.h"

namespace lockstep {
namespace {

using test::a_case;
using test::gpt2;
using test::llama;
using test::megatron_plan;
using test::mixtral;
using test::ordered_json;
using test::planner_folder;
using test::random_plans;
using test::read;
using testing::HasSubstr;
using testing::IsEmpty;

// The closed form is exact where stages are equal and messages take no time; where weights' gradients fill
// the bubble, it must be far nearer to the replay than that of 1F1B.
TEST(PlannerSearches, RankPlansAsReplaysDo) {
  std::mt19937 random(9);
  std::map<std::string, int> compared;
  for (PlanCase c : random_plans(random, 300)) {
    const ScheduleEntry& schedule = find_schedule(c.arrangement.schedule);
    if (!schedule.in_flight(c.arrangement.shape(), 0)) continue;
    ++compared[c.arrangement.schedule];
    c.model.vocabulary = 1;  // the ends of the model take next to no time, messages none
    c.cluster.nic_bytes_per_second *= 1e9;
    c.cluster.nvlink_bytes_per_second *= 1e9;
    c.profile.nic_latency = c.profile.nvlink_latency = 0;
    const StepPrediction replayed = predict_step(c);
    LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
    const QuickStep quick = quick_step({c.model, c.arrangement, c.cluster, c.profile, costs});
    const double error = std::abs(quick.seconds - replayed.seconds);
    EXPECT_LE(error, 0.02 * replayed.seconds) << text_of(c.arrangement);
    if (schedule.splits_backward && c.arrangement.pp > 1) {
      Arrangement fused = c.arrangement;
      fused.schedule = fused.virtual_stages > 1 ? "interleaved" : "1f1b";
      const double of_1f1b =
          quick_step({c.model, fused, c.cluster, c.profile, costs}).seconds - replayed.seconds;
      EXPECT_LE(error, 0.5 * std::abs(of_1f1b)) << text_of(c.arrangement);
    }
    // Where the first layers have no experts, a rank's stages hold unequally much.
    const bool is_uneven = c.model.experts.first_layer > 0 && c.arrangement.virtual_stages > 1;
    EXPECT_NEAR(quick.largest_memory, replayed.largest_memory(),
                (is_uneven ? 0.02 : 1e-9) * quick.largest_memory)
        << text_of(c.arrangement);
  }
  for (const char* name : {"1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"})
    EXPECT_GT(compared[name], 3) << name;
}

// Of six layers on a V of two ranks, the first has the two ends and two layers, the second four.
TEST(PlannerSearches, KnowTheEndsOfAV) {
  for (const char* schedule : {"zb-v", "dualpipe-v"}) {
    const PlanCase c =
        read(a_case(llama(32, 8, 4096, 14336, 6), 8,
                    {{"tp", 4}, {"pp", 2}, {"schedule", schedule}, {"global_batch", 32}},
                    "h100-dgx", "megatron-core-2025"));
    const StepPrediction replayed = predict_step(c);
    const QuickStep quick = quick_step({c.model, c.arrangement, c.cluster, c.profile,
                                        layer_costs(c.model, c.arrangement, c.cluster, c.profile)});
    EXPECT_NEAR(quick.seconds, replayed.seconds, 0.05 * replayed.seconds) << schedule;
    EXPECT_NEAR(quick.largest_memory, replayed.largest_memory(), 1e-9 * quick.largest_memory)
        << schedule;
  }
}

TEST(PlannerSearches, AdviseOnShapesThatAreSlow) {
  const PlanCase c =
      read(a_case(llama(32, 8, 1024, 2752, 16), 1, ordered_json::object()));  // heads of 32
  EXPECT_EQ(advice(c.model, c.arrangement).front(),
            "the head size is 32, not a multiple of 64: take 64");
  const PlanCase wide =
      read(a_case(gpt2(32, 3200, 16), 1, ordered_json::object()));  // heads of 100
  EXPECT_EQ(advice(wide.model, wide.arrangement).front(),
            "the head size is 100, not a multiple of 64: take 64 or 128");
}

TEST(PlannerSearches, DoubleEveryRateOfAResource) {
  const ClusterSheet cluster = cluster_sheet(planner_folder, "h100-dgx");
  for (const Resource& resource : resources())
    for (const auto rate : resource.rates)
      EXPECT_EQ(with_double(resource, cluster).*rate, 2 * cluster.*rate) << resource.name;
}

TEST(PlannerCases, StateWhatTheyAssume) {
  ordered_json entry = a_case(gpt2(32, 4096, 38), 64, megatron_plan(4, 4, 1, 1, 64));
  Arrangement a = read(entry).arrangement;
  EXPECT_EQ(a.layers_per_stage, (std::vector<int>{9, 10, 10, 9}));
  EXPECT_EQ(a.assumptions, std::vector<std::string>{"layers_per_stage is 9,10,10,9"});
  entry["plan"]["ends_count_as_layers"] = true;  // 40 places
  a = read(entry).arrangement;
  EXPECT_EQ(a.layers_per_stage, (std::vector<int>{9, 10, 10, 9}));
  EXPECT_THAT(a.assumptions, IsEmpty());
  entry["plan"]["layers_per_stage"] = {8, 10, 10, 10};
  EXPECT_EQ(read(entry).arrangement.layers_per_stage, (std::vector<int>{8, 10, 10, 10}));
}

std::string refusal_of(const ordered_json& entry) {
  try {
    read(entry);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return refusal(error);
  }
  ADD_FAILURE() << entry.dump() << " was accepted";
  return "";
}

TEST(PlannerCases, AreRefusedByName) {
  const ordered_json good = a_case(gpt2(32, 4096, 36), 64, megatron_plan(4, 2, 1, 1, 64));
  EXPECT_GT(predict_step(read(good)).seconds, 0);
  const auto with = [&](const char* pointer, ordered_json value) {
    ordered_json entry = good;
    entry[ordered_json::json_pointer(pointer)] = std::move(value);
    return refusal_of(entry);
  };
  EXPECT_THAT(with("/cluster", "a200"), HasSubstr("choose one of a100-dgx"));
  EXPECT_THAT(with("/profile", "/none.json"), HasSubstr("cannot read /none.json"));
  EXPECT_THAT(with("/model/n_embd", 0), HasSubstr("\"n_embd\" is 0"));
  EXPECT_THAT(with("/model/n_layer", nullptr), HasSubstr("no \"n_layer\""));
  EXPECT_THAT(with("/model/model_type", "bert"), HasSubstr("knows gpt2, gpt2-gqa"));
  EXPECT_THAT(with("/model/num_local_experts", 8), HasSubstr("no \"num_experts_per_tok\""));
  EXPECT_THAT(with("/gpus", 60), HasSubstr("tp x cp x pp = 8 does not divide 60"));
  EXPECT_THAT(with("/gpus", 0), HasSubstr("no number of \"gpus\""));
  EXPECT_THAT(with("/nic_bytes_per_second", -1), HasSubstr("positive"));
  EXPECT_THAT(with("/plan/dp", 3), HasSubstr("is not 64 GPUs"));
  EXPECT_THAT(with("/model/n_head", 2), HasSubstr("2 heads are not divisible by 4"));
  EXPECT_THAT(with("/plan/global_batch", 63), HasSubstr("multiple of micro_batch_size x dp"));
  EXPECT_THAT(with("/plan/cp", 2), HasSubstr("which megatron-2021 has not"));
  EXPECT_THAT(with("/plan/ep", 2), HasSubstr("no experts"));
  EXPECT_THAT(with("/plan/gemm_dtype", "fp8"), HasSubstr("use gemm_dtype bf16"));
  EXPECT_THAT(with("/plan/zero", 3), HasSubstr("without a pipeline"));
  EXPECT_THAT(with("/plan/schedule", "2f2b"), HasSubstr("use 1f1b or"));
  EXPECT_THAT(with("/plan/virtual_stages", 1 << 20), HasSubstr("from 1 to 1000"));
  EXPECT_THAT(with("/plan/global_batch", std::int64_t{1} << 32),
              HasSubstr("use larger micro-batches"));
  EXPECT_THAT(with("/plan/virtual_stages", 20), HasSubstr("40 stages of 36 layers"));
  EXPECT_THAT(with("/plan/layers_per_stage", ordered_json::array({20, 20})),
              HasSubstr("are not the 36 layers of 2 stages"));
  EXPECT_THAT(with("/plan/zero1", 1), HasSubstr("unknown \"zero1\""));
  const ordered_json experts = a_case(
      mixtral(32), 64, {{"tp", 2}, {"ep", 8}, {"sequence_length", 64}, {"sequence_parallel", true}},
      "h100-dgx", "megatron-core-2025");
  EXPECT_GT(predict_step(read(experts)).seconds, 0);
  const auto with_experts = [&](const char* pointer, ordered_json value) {
    ordered_json entry = experts;
    entry[ordered_json::json_pointer(pointer)] = std::move(value);
    return refusal_of(entry);
  };
  EXPECT_THAT(with_experts("/plan/ep", 3), HasSubstr("8 experts are not divisible by 3"));
  EXPECT_THAT(with_experts("/plan/etp", 3), HasSubstr("14336 columns of an expert"));
  EXPECT_THAT(with_experts("/gpus", 4),
              HasSubstr("ep 8 x etp 1 does not divide tp 2 x cp 1 x dp 2"));
  EXPECT_THAT(with_experts("/plan/sequence_parallel", false),
              HasSubstr("use sequence_parallel true"));
  EXPECT_THAT(with_experts("/profile", "megatron-2021"),
              HasSubstr("experts, which megatron-2021 has not"));
  EXPECT_THAT(with_experts("/model/num_experts_per_tok", 9),
              HasSubstr("9 experts for each token of 8"));
  EXPECT_THAT(with("/calibrates", true), HasSubstr("without measured_seconds"));
}

TEST(PlannerData, IsRefusedByName) {
  const std::string path = testing::TempDir() + "/profile.json";
  const ordered_json good =
      ordered_json::parse(std::ifstream(planner_folder + "/profiles/megatron-2021.json"));
  const auto with = [&](const char* pointer, ordered_json value) {
    ordered_json file = good;
    file[ordered_json::json_pointer(pointer)] = std::move(value);
    std::ofstream(path) << file.dump();
    try {
      software_profile(planner_folder, path);
    } catch (const Error& error) {
      return refusal(error);
    }
    return std::string("accepted");
  };
  EXPECT_EQ(with("/name", "mine"), "accepted");
  EXPECT_THAT(with("/schema", "lockstep.cluster/1"), HasSubstr("another \"schema\""));
  EXPECT_THAT(with("/constants/nic_latency/value", -1), HasSubstr("\"nic_latency\" is -1"));
  EXPECT_THAT(with("/constants/nic_latency/unit", "us"), HasSubstr("give it in s"));
  EXPECT_THAT(with("/constants/nic_latency/source", ""), HasSubstr("no \"source\""));
  EXPECT_THAT(with("/constants/nic_efficiency/value", 1.5), HasSubstr("from 0 to 1"));
  for (const double count : {0.5, 1e300})
    EXPECT_THAT(with("/constants/optimizer_launches/value", count), HasSubstr("a whole number"));
  EXPECT_THAT(with("/constants/speed", good["constants"]["nic_latency"]),
              HasSubstr("nothing reads \"speed\""));
  EXPECT_THAT(with("/rules/dropout", 1), HasSubstr("no rule \"dropout\""));
  EXPECT_THAT(with("/fitted/0/most", 7), HasSubstr("at most 1 for a fraction"));
  EXPECT_THAT(with("/fitted/0/rows", 1e300), HasSubstr("use 1 to 1000"));
  EXPECT_THAT(with("/fitted/0/name", "speed"), HasSubstr("there is no such constant"));
}

TEST(PlannerScores, CountWhatTheyHoldOut) {
  const Errors errors = errors_of({0.1, -0.3, 0.2});
  EXPECT_EQ(errors.count, 3);
  EXPECT_NEAR(errors.mean, 0.2, 1e-15);
  EXPECT_EQ(errors.median, 0.2);
  EXPECT_EQ(errors.worst, 0.3);
  const std::string path = testing::TempDir() + "/table.json";
  ordered_json table = {{"schema", "lockstep.table/1"},
                        {"name", "t"},
                        {"source", "s"},
                        {"noise", 0.01},
                        {"goals", {{"mean", 0.5}}},
                        {"rows", ordered_json::array()}};
  const auto score = [&] {
    std::ofstream(path) << table.dump();
    return score_table(path, planner_folder);
  };
  EXPECT_THROW(score(), Error);  // nothing is held out
  ordered_json row = a_case(gpt2(32, 4096, 36), 64, megatron_plan(4, 2, 1, 1, 64));
  const double seconds = predict_step(read(row)).seconds;
  row["measured_seconds"] = seconds * 1.25;
  table["rows"].push_back(row);
  EXPECT_NEAR(score().held_out.mean, 0.25, 1e-12);
  EXPECT_THAT(score().missed, IsEmpty());
  table["goals"]["mean"] = 0.2;
  EXPECT_EQ(score().missed.size(), 1u);
}

}  // namespace
}  // namespace lockstep
