// What predictions and dry runs take tokens to choose: counts and bytes written out here by hand, and what
// must hold of all choices.
#include "parallel/plan/expert_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/expert/assumed_rows.h"
#include "parallel/plan/make_plan.h"
#include "parallel/predict/predict.h"
#include "parallel/train/dry_run.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Counts = std::vector<Count>;

GptConfig four_experts(int per_token, int layers = 2, int every = 2) {
  GptConfig model;
  model.layers = layers, model.heads = 2, model.width = 8;
  model.context = 4, model.vocabulary = 128;
  model.experts = {.number = 4, .per_token = per_token, .every = every, .width = 8};
  return model;
}

// Of a run whose steps have 2 sequences of 4 tokens.
json result_of(const std::vector<Counts>& layers) {
  return {{"schema", "lockstep.train/1"},
          {"config", {{"global_batch", 2}, {"sequence_length", 4}}},
          {"steps",
           {{{"step", 0}, {"tokens_of_experts", {{0, 0, 0, 0}}}},
            {{"step", 1}, {"tokens_of_experts", layers}}}}};
}

std::string file_of(const test::Folder& folder, const json& content) {
  write_file(folder.file("run.json"), content.dump());
  return folder.file("run.json");
}

Counts counted(const std::vector<std::int32_t>& experts, int number) {
  Counts counts(static_cast<std::size_t>(number));
  for (const std::int32_t e : experts) ++counts[static_cast<std::size_t>(e)];
  return counts;
}

// One source after another.
std::vector<Counts> counts_of(const ExpertChoices& choices, int sources, Count tokens,
                              int layer = 1) {
  std::vector<Counts> counts;
  for (int s = 0; s < sources; ++s) counts.push_back(choices.counts(layer, {s, sources}, tokens));
  return counts;
}

TEST(ExpertChoices, InTurnAreAsEvenAsTheyCanBe) {
  const auto choices = expert_choices("in_turn", four_experts(3), 1);
  EXPECT_THAT(choices->experts(1, {}, 3), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0));
  EXPECT_THAT(counts_of(*choices, 2, 3), ElementsAre(Counts{3, 2, 2, 2}, Counts{3, 2, 2, 2}));
}

TEST(ExpertChoices, AreThoseOfTheLastStep) {
  const test::Folder folder;
  const auto choices =
      expert_choices(file_of(folder, result_of({{8, 4, 3, 1}})), four_experts(2), 1);
  EXPECT_THAT(counts_of(*choices, 1, 8), ElementsAre(Counts{8, 4, 3, 1}));
  // Tokens 0 to 7 have these second experts: 1 1 1 1 2 2 2 3. They are dealt out to the sources in turn.
  EXPECT_THAT(choices->experts(1, {1, 2}, 4), ElementsAre(0, 1, 0, 1, 0, 2, 0, 3));
  EXPECT_THAT(counts_of(*choices, 2, 4), ElementsAre(Counts{4, 2, 2, 0}, Counts{4, 2, 1, 1}));
  // 6 of 8 tokens: 6, 3, 2.25 and 0.75.
  EXPECT_THAT(counts_of(*choices, 1, 6), ElementsAre(Counts{6, 3, 2, 1}));
  // 13 of 8: 13, 6.5, 4.875 and 1.625.
  EXPECT_THAT(counts_of(*choices, 1, 13), ElementsAre(Counts{13, 6, 5, 2}));
  EXPECT_THAT(counts_of(*choices, 1, 0), ElementsAre(Counts{0, 0, 0, 0}));
}

TEST(ExpertChoices, OfEqualRemaindersTheSmallerExpertHasOneMore) {
  const test::Folder folder;
  const auto choices =
      expert_choices(file_of(folder, result_of({{2, 2, 2, 2}})), four_experts(1), 1);
  EXPECT_THAT(counts_of(*choices, 1, 3), ElementsAre(Counts{1, 1, 1, 0}));
}

TEST(ExpertChoices, DifferByLayer) {
  const test::Folder folder;
  const GptConfig model = four_experts(1, 5, 2);  // layers 1 and 3
  const auto choices =
      expert_choices(file_of(folder, result_of({{5, 1, 2, 0}, {0, 0, 0, 8}})), model, 1);
  EXPECT_THAT(counts_of(*choices, 1, 8, 1), ElementsAre(Counts{5, 1, 2, 0}));
  EXPECT_THAT(counts_of(*choices, 1, 8, 3), ElementsAre(Counts{0, 0, 0, 8}));
}

TEST(ExpertChoices, HaveDifferentExpertsForEachTokenAndTheirCounts) {
  const test::Folder folder;
  const std::string file = file_of(folder, result_of({{7, 6, 3, 0}}));
  for (const std::string& name : {std::string("in_turn"), std::string("zipf:1.5"), file}) {
    const auto choices = expert_choices(name, four_experts(2), 3);
    for (const int sources : {1, 3, 4})
      for (const Count tokens : {1, 5, 8, 31}) {
        Counts sums(4);
        for (int s = 0; s < sources; ++s) {
          const std::vector<std::int32_t> experts = choices->experts(1, {s, sources}, tokens);
          ASSERT_EQ(std::ssize(experts), 2 * tokens);
          for (std::size_t i = 0; i < experts.size(); i += 2)
            EXPECT_NE(experts[i], experts[i + 1]) << name;
          const Counts counts = choices->counts(1, {s, sources}, tokens);
          EXPECT_EQ(counts, counted(experts, 4)) << name << " " << s << " " << tokens;
          std::ranges::transform(sums, counts, sums.begin(), std::plus());
        }
        if (name != file) continue;
        EXPECT_EQ(sums, choices->counts(1, {}, tokens * sources));
        EXPECT_EQ(sums[3], 0);
      }
  }
}

TEST(ExpertChoices, AreDrawnFromAStreamOfEachSource) {
  const auto choices = expert_choices("zipf:1", four_experts(1), 1);
  const std::vector<Counts> drawn = counts_of(*choices, 4, 2000);
  EXPECT_EQ(std::set<Counts>(drawn.begin(), drawn.end()).size(), 4U);
  // Shares of 12, 6, 4 and 3 of 25.
  for (const Counts& counts : drawn)
    for (int e = 0; e < 4; ++e)
      EXPECT_NEAR(static_cast<double>(counts[static_cast<std::size_t>(e)]) / 2000,
                  12.0 / 25 / (e + 1), 0.04);
  EXPECT_EQ(counts_of(*choices, 4, 2000, 3), drawn);
  EXPECT_NE(counts_of(*expert_choices("zipf:1", four_experts(1), 2), 4, 2000), drawn);
}

TEST(ExpertChoices, SayWhatTheyRefuse) {
  const test::Folder folder;
  int refused = 0;
  const auto expect_refusal = [&](const std::string& name, const char* said,
                                  const GptConfig& model = four_experts(2)) {
    ++refused;
    try {
      expert_choices(name, model, 1);
      ADD_FAILURE() << said;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  };
  for (const char* name : {"zipf:-1", "zipf:nan", "zipf:inf", "zipf:1x", "zipf:", "zipf:10.5"})
    expect_refusal(name, "use zipf:Z with Z from 0 to 10");
  expect_refusal("zipf", "--expert-choices zipf: there is no such file; use in_turn, zipf:Z");
  const json good = result_of({{8, 4, 3, 1}});
  write_file(folder.file("cut.json"), good.dump().substr(0, good.dump().size() - 9));
  expect_refusal(folder.file("cut.json"), "not a result of lockstep train, or not all of it");

  const auto expect_wrong = [&](auto change, const char* said) {
    json wrong = good;
    change(wrong);
    expect_refusal(file_of(folder, wrong), said);
  };
  expect_wrong([](json& f) { f["schema"] = "lockstep.plan/1"; }, "not a result of lockstep train");
  expect_wrong([](json& f) { f["config"].erase("global_batch"); }, R"("global_batch" of its)");
  expect_wrong([](json& f) { f["config"]["sequence_length"] = 1LL << 31; }, "no tokens of a step");
  expect_wrong([](json& f) { f["steps"] = json::array(); }, "it has no step");
  expect_wrong([](json& f) { f["steps"].back().erase("tokens_of_experts"); },
               R"(its last step has no "tokens_of_experts")");
  const auto expect_wrong_counts = [&](const json& layers, const char* said) {
    expect_wrong([&](json& f) { f["steps"].back()["tokens_of_experts"] = layers; }, said);
  };
  expect_wrong_counts({{8, 4, 3, 1}, {8, 4, 3, 1}}, "2 layers with experts, and the model has 1");
  expect_wrong_counts({{8, 8}}, "2 experts in a layer, and the model has 4");
  expect_wrong_counts({{8, 8, 8, 0}}, "3 experts per token, and the model has 2");
  expect_wrong_counts({{8, 4, 3, 0}}, "15 choices of 8 tokens: some were dropped");
  expect_wrong_counts({{9, 4, 3, 0}}, "an expert with 9 of 8 tokens");
  expect_wrong_counts({{8, 9, -1, 0}}, "an expert with 9 of 8 tokens");
  expect_wrong_counts({{8, 4, -1, 5}}, "an expert with -1 of 8 tokens");
  expect_wrong_counts({{8, 4.5, 3, 0.5}}, "an expert with 4.5 of 8 tokens");
  EXPECT_EQ(refused, 21);
}

TrainOptions moe(const std::string& choices, int batch, void (*set)(TrainOptions&) = nullptr) {
  TrainOptions options = default_options("moe");
  options.expert_choices = choices;
  options.global_batch = batch;
  if (set) set(options);
  return options;
}

// In rows of 8 f32.
Volume rows_of(const Prediction& prediction, const std::string& label) {
  Volume volume = prediction.traffic.at(label);
  volume.sent_bytes /= 32, volume.received_bytes /= 32;
  return volume;
}

void expect_rows(const Plan& plan, const Environment& environment, const std::string& label,
                 const std::vector<std::pair<Count, Count>>& of_ranks) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const Volume rows = rows_of(predict(plan, rank, environment), label);
    EXPECT_EQ(std::pair(rows.sent_bytes, rows.received_bytes),
              of_ranks[static_cast<std::size_t>(rank)])
        << label << " " << rank;
  }
}

// Four ranks with an expert and two tokens each. Tokens 0 to 7 choose 0 0 0 0 0 1 2 2, and rank r has
// tokens r and r + 4.
TEST(AssumedRows, AreThoseOfEachPairOfRanks) {
  const test::Folder folder;
  const std::string file = file_of(folder, result_of({{5, 1, 2, 0}}));
  const Plan plan =
      plan_of(moe(file, 4, [](TrainOptions& o) { o.sequence_length = 2; }), 4, four_experts(1));
  expect_rows(plan, {}, "dispatch forward", {{0, 3}, {1, 0}, {1, 1}, {2, 0}});
  expect_rows(plan, {}, "combine forward", {{3, 0}, {0, 1}, {1, 1}, {0, 2}});
  expect_rows(plan, {}, "combine backward", {{0, 3}, {1, 0}, {1, 1}, {2, 0}});
  EXPECT_THAT(AssumedRows(plan, 2).loads(), ElementsAre(5, 1, 2, 0));
  const std::string formula = predict(plan, 0).formulas.at("dispatch forward");
  EXPECT_THAT(formula, HasSubstr("C * beta, if experts are chosen as in " + file));

  // Inside nodes of two ranks to the place of the expert in its node, then between nodes.
  Plan on_nodes = plan;
  on_nodes.options.token_dispatcher = "two_level";
  Environment environment;
  environment.expert_ranks_per_node = 2;
  expect_rows(on_nodes, environment, "dispatch forward, in nodes",
              {{0, 1}, {1, 0}, {0, 2}, {2, 0}});
  expect_rows(on_nodes, environment, "dispatch forward, between nodes",
              {{0, 2}, {0, 0}, {2, 0}, {0, 0}});

  // An expert takes at most two of a rank's tokens anyway; with half the mean, one.
  Plan dropping = plan;
  dropping.model.experts.capacity = 0.5;
  EXPECT_THAT(AssumedRows(dropping, 2).loads(), ElementsAre(4, 1, 2, 0));
}

// Layer 0 is on ranks 0 and 1, layer 1 on ranks 2 and 3.
TEST(AssumedRows, AreThoseOfTheStagesLayersAndAllMicroBatches) {
  const test::Folder folder;
  const std::string file = file_of(folder, result_of({{8, 0, 0, 0}, {0, 0, 1, 7}}));
  const Plan plan = plan_of(
      moe(file, 4, [](TrainOptions& o) { o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 2; }), 4,
      four_experts(1, 2, 1));
  // 4 tokens of a rank in each of two micro-batches.
  const bool dp_first = plan.place(1, Axis::dp) == 1;
  ASSERT_TRUE(dp_first);
  expect_rows(plan, {}, "dispatch forward", {{0, 8}, {8, 0}, {8, 0}, {0, 8}});
  EXPECT_THAT(AssumedRows(plan, 0).loads(), ElementsAre(16, 0));
  EXPECT_THAT(AssumedRows(plan, 2).loads(), ElementsAre(0, 16));
}

// Ranks that split experts and sequences have different tokens. Tokens 0 to 7 have experts 0 and
// 1 1 1 1 1 2 2 3; with a capacity of two, rank 0 keeps rows of tokens 0 2 4 6 for 0, 1 and 2: 2, 2 and 1.
TEST(AssumedRows, DifferBetweenRanksThatSplitExperts) {
  const test::Folder folder;
  const std::string file = file_of(folder, result_of({{8, 5, 2, 1}}));
  const Plan plan = plan_of(moe(file, 2,
                                [](TrainOptions& o) {
                                  o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true;
                                  o.expert_capacity = 1, o.token_drop_policy = "probs";
                                }),
                            2, four_experts(2));
  const ExpertGroup group{plan.split(1).experts, plan.model.experts};
  const std::vector<DispatchedRows> rows = AssumedRows(plan, 1).of_step(group);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(rows.front().of_parts, ElementsAre(5, 6));
  EXPECT_THAT(rows.front().sent, ElementsAre(6));
  // Rank 0 gathers the other's 6 rows for its own 5, and reduces to the other 6 for 5.
  expect_rows(plan, {}, "split experts forward", {{5 + 6, 6 + 5}, {6 + 5, 5 + 6}});
}

// All that one rank sends another one receives, and a rank alone counts what is predicted.
TEST(AssumedRows, AreThoseOfDryRuns) {
  const test::Folder folder;
  const std::string file = file_of(folder, result_of({{7, 6, 3, 0}, {0, 1, 7, 8}}));
  const auto options = [](void (*set)(TrainOptions&), const std::string& choices) {
    TrainOptions run = test::run_with_experts("moe");
    run.steps = 2;
    run.expert_choices = choices;
    set(run);
    return run;
  };
  const auto record_of = [](const Plan& plan, int rank) {
    TrainResult result;
    launch_alone({.ranks = plan.ranks,
                  .fault = {},
                  .links = {.ranks_per_node = 2},
                  .device = &none_device()},
                 rank, [&](RankContext& context) { result = dry_run(context, plan); });
    EXPECT_TRUE(theory_holds(result)) << rank;
    return result.ranks.front();
  };
  for (const std::string& choices : {std::string("zipf:1"), file})
    for (const auto& [ranks, set] : std::vector<std::pair<int, void (*)(TrainOptions&)>>{
             {4, [](TrainOptions&) {}},
             {4, [](TrainOptions& o) { o.token_dispatcher = "two_level"; }},
             {4,
              [](TrainOptions& o) {
                o.token_dispatcher = "deduplicated", o.router_weights = "expert";
              }},
             {8,
              [](TrainOptions& o) {
                o.token_dispatcher = "deduplicated", o.router_weights = "expert";
                o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true;
              }},
             {4,
              [](TrainOptions& o) {
                o.token_dispatcher = "all_gather", o.router_weights = "expert";
              }},
             {8, [](TrainOptions& o) { o.expert_ranks = 2, o.recompute = "full"; }},
             {4, [](TrainOptions& o) { o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 2; }},
             {8, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true; }},
             {8,
              [](TrainOptions& o) {
                o.mesh_lengths[Axis::tp] = 2;
                o.expert_capacity = 1, o.token_drop_policy = "probs";
              }},
             {8, [](TrainOptions& o) {
                o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true;
                o.expert_tensor_ranks = 1;
              }}}) {
      const Plan plan = plan_of(options(set, choices), ranks);
      const Plan in_turn = plan_of(options(set, "in_turn"), ranks);
      Environment environment;
      environment.expert_ranks_per_node = 2;
      std::map<std::string, Count> left;  // sent and not received, by label
      bool differs = false;
      for (int rank = 0; rank < ranks; ++rank) {
        const Prediction prediction = predict(plan, rank, environment),
                         evenly = predict(in_turn, rank, environment);
        const RankRecord counted = record_of(plan, rank);
        EXPECT_EQ(counted.traffic, prediction.traffic) << choices << " " << rank;
        EXPECT_EQ(counted.expert_rows, AssumedRows(plan, rank).loads()[plan.expert_rank(rank)])
            << choices << " " << rank;
        differs = differs || prediction.traffic != evenly.traffic;
        for (int use = 0; use < memory_uses; ++use)
          EXPECT_EQ(prediction.peak_bytes[static_cast<std::size_t>(use)]->value,
                    evenly.peak_bytes[static_cast<std::size_t>(use)]->value);
        for (const auto& [label, volume] : prediction.traffic)
          left[label] += volume.sent_bytes - volume.received_bytes;
      }
      EXPECT_EQ(differs, plan.options.token_dispatcher != "all_gather");
      for (const auto& [label, bytes] : left) EXPECT_EQ(bytes, 0) << label;
    }
}

}  // namespace
}  // namespace lockstep
