// Matrices that a step needs whole: who owns them, what travels, and which plans do without.
#include "parallel/matrices/owners.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/gpt/weights.h"
#include "parallel/checkpoint/convert.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/rank_model.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using testing::HasSubstr;

TrainOptions with_muon(TrainOptions options) {
  options.optimizer = "muon";
  return options;
}

// Each matrix has one owner, to which the ranks' elements are all of it.
void expect_all_owned(const TrainOptions& options, int ranks, std::size_t group) {
  const Plan plan = plan_of(options, ranks);
  std::map<std::string, std::set<int>> owners;
  for (int rank = 0; rank < ranks; ++rank) {
    const MatrixOwners own(plan, rank, ParameterSet::dense);
    ASSERT_EQ(own.ranks().size(), group);
    ASSERT_EQ(own.ranks()[own.place()], rank);
    const RankOutline outline(plan, rank);
    for (std::size_t r = 0; r < own.rounds().size(); ++r) {
      const auto matrix = own.rounds()[r].own;
      if (!matrix) continue;
      const Parameter& parameter = outline.parameters().list()[*matrix];
      owners[parameter.name].insert(rank);
      std::set<std::pair<Count, Count>> elements;
      for (std::size_t holder = 0; holder < group; ++holder)
        for (const PlacedBox& placed : own.boxes_of_own(r, holder))
          for (Count row = 0; row < placed.box.rows.count; ++row)
            for (Count column = 0; column < placed.box.columns.count; ++column)
              elements.insert({placed.box.rows.first + row, placed.box.columns.first + column});
      Count columns = 0;
      for (const Count each : parameter.hidden.columns) columns += each;
      EXPECT_EQ(std::ssize(elements), parameter.hidden.rows * columns) << parameter.name;
    }
  }
  // Groups have the same matrices as others of their stage.
  for (const auto& [name, of_matrix] : owners)
    EXPECT_EQ(of_matrix.size() * group, static_cast<std::size_t>(ranks / plan.length(Axis::pp)))
        << name;
  EXPECT_EQ(std::ssize(owners), 4 * plan.model.layers);
}

TEST(MatrixOwners, HaveEveryMatrixOnce) {
  expect_all_owned(with_muon(test::few_steps("ddp")), 3, 1);
  expect_all_owned(with_muon(test::few_steps("fsdp")), 4, 4);
  expect_all_owned(with_muon(test::few_steps("tp")), 2, 2);
  TrainOptions rows = with_muon(test::few_steps("fsdp"));
  rows.sharding = "per-parameter";
  expect_all_owned(rows, 3, 3);
  TrainOptions hybrid = with_muon(test::few_steps("fsdp"));
  hybrid.replicas = 2;
  expect_all_owned(hybrid, 4, 2);
  TrainOptions mesh = with_muon(test::mesh(2, 2, 2));
  expect_all_owned(mesh, 8, 4);
  mesh.zero_stage = 0;
  expect_all_owned(mesh, 8, 2);
}

// If each rank has the same part of every matrix, all ranks send 2 (G-1)/G of what they hold together.
TEST(MatrixOwners, SendWhatIsNotTheirs) {
  TrainOptions options = with_muon(test::few_steps("fsdp", DType::f64));
  options.sharding = "per-parameter";
  options.steps = 1;
  constexpr int ranks = 2;
  const TrainResult result = test::run(ranks, options);
  EXPECT_TRUE(theory_holds(result));
  Count hidden = 0;
  for (const Parameter& parameter : whole_parameters(gpt_config(options.model)))
    if (parameter.hidden.exist()) hidden += parameter.count;
  std::int64_t sent = 0;
  for (const TheoryRecord& row : result.theory)
    if (row.quantity == "sent_bytes.matrices") sent += std::llround(row.measured);
  EXPECT_EQ(sent, 2 * (ranks - 1) * hidden / ranks * 8);
  // Four matrices a layer in rounds of two, there and back.
  const MatrixOwners owners(plan_of(options, ranks), 1, ParameterSet::dense);
  EXPECT_EQ(owners.traffic().sent_messages,
            2 * (ranks - 1) * 4 * gpt_config(options.model).layers / ranks);
}

// Every matrix from activations to activations: also routers and all experts, but no table or head.
TEST(HiddenMatrices, AreThoseOfBlocks) {
  const GptConfig model = gpt_config(test::run_with_experts("serial").model);
  const ExpertConfig& experts = model.experts;
  int hidden = 0, expected = 0;
  for (const Parameter& parameter : whole_parameters(model)) {
    const bool is_matrix = parameter.shape.size() == 2;
    EXPECT_EQ(parameter.hidden.exist(), is_matrix && parameter.name.starts_with("h."))
        << parameter.name;
    hidden += parameter.hidden.exist();
  }
  for (int layer = 0; layer < model.layers; ++layer)
    expected += experts.in_layer(layer)
                    ? 2 + 1 + 2 * static_cast<int>(experts.number) + (experts.shared > 0 ? 2 : 0)
                    : 4;
  EXPECT_EQ(hidden, expected);
}

// With fewer key/value heads than ranks, two ranks hold the same columns of a matrix.
TEST(MatrixOwners, TakeSharedHeadsTwice) {
  const test::Folder folder;
  GptConfig model = gpt_config(test::few_steps("serial").model);
  model.heads = 4;
  model.kv_heads = 2;
  write_file(folder.file("config.json"), gpt_config_json(model));
  TrainOptions options = with_muon(test::few_steps("serial"));
  options.model = folder.file("config.json");
  options.init.clear();
  TrainResult serial;
  const std::vector<double> expected =
      test::trained_weights({"serial", 1, options}, folder.file("a.safetensors"), serial);
  options.technique = "tp";
  test::expect_equals_serial({"tp", 4, options}, serial, expected, folder.file("b.safetensors"));
}

TEST(MatrixOwners, RefusePlansThatCutMatricesAndStates) {
  const auto refused = [](TrainOptions options, int ranks) {
    return test::refusal(ranks, with_muon(std::move(options)));
  };
  EXPECT_THAT(refused(test::few_steps("ps"), 2), HasSubstr("parameter servers, which cut them"));
  TrainOptions offload = test::few_steps("fsdp");
  offload.offload = "optimizer";
  EXPECT_THAT(refused(offload, 2),
              HasSubstr("--offload optimizer, whose groups of states cut them"));
  TrainOptions still = test::few_steps("serial");
  still.learning_rate = 0;
  EXPECT_THAT(refused(still, 1), HasSubstr("--optimizer muon with --lr 0"));
}

TrainOptions with_galore(TrainOptions options) {
  options.optimizer = "galore";
  options.galore_rank = 4;
  options.galore_period = 3;
  options.learning_rate = 0.01;
  return options;
}

// All owners together keep the states of all matrices, and each as much as is predicted.
TEST(MatrixStates, AreTheOwners) {
  const Case all[] = {{"ddp", 2, with_galore(test::few_steps("ddp"))},
                      {"zero", 3, with_galore(test::few_steps("zero"))},
                      {"fsdp", 4, with_galore(test::few_steps("fsdp"))},
                      {"tp", 2, with_galore(test::few_steps("tp"))}};
  for (const Case& one : all) {
    SCOPED_TRACE(one.name);
    const TrainResult result = test::run(one.ranks, one.options);
    EXPECT_TRUE(theory_holds(result));
    const std::vector<Parameter> list = whole_parameters(gpt_config(one.options.model));
    const OptimizerSettings settings = optimizer_settings(one.options);
    Count of_matrices = 0, of_rest = 0;
    for (const Parameter& parameter : list) {
      if (!parameter.hidden.exist()) of_rest += 2 * parameter.count;
      for (const MatrixState& state : matrix_states_of(settings, parameter))
        of_matrices += state.rows * state.columns;
    }
    Count held = 0;
    for (const RankRecord& rank : result.ranks) held += rank.peak_bytes.at("optimizer");
    if (one.name == "ddp") {
      EXPECT_EQ(held, 2 * 8 * (of_matrices + of_rest));
    } else if (one.name != "tp") {
      EXPECT_EQ(held, 8 * (of_matrices + of_rest));
    } else {
      EXPECT_GT(held, 8 * (of_matrices + of_rest));  // norms and some biases are on both ranks
      EXPECT_LT(held, 8 * (of_matrices + 2 * of_rest));
    }
  }
}

// The table of closed forms, as `lockstep plan` predicts it: nano at rank 32, small at rank 64, in f32.
TEST(MatrixStates, AreAsSmallAsPlansSay) {
  struct Row {
    const char* model;
    int rank;
    const char* projection;
    Count numbers;
  };
  for (const Row& row :
       {Row{"nano", 32, "std", 458'752}, Row{"nano", 32, "reverse_std", 327'680},
        Row{"small", 64, "std", 4'128'768}, Row{"small", 64, "reverse_std", 2'949'120}}) {
    TrainOptions options;
    options.technique = "serial";
    options.model = row.model;
    options.optimizer = "galore";
    options.galore_rank = row.rank;
    options.galore_projection = row.projection;
    Count of_rest = 0;
    for (const Parameter& parameter : whole_parameters(gpt_config(row.model)))
      if (!parameter.hidden.exist()) of_rest += 2 * parameter.count;
    const auto optimizer =
        predict(plan_of(options, 1), 0).peak_bytes[static_cast<std::size_t>(MemoryUse::optimizer)];
    ASSERT_TRUE(optimizer);
    EXPECT_EQ(optimizer->value, 4 * (row.numbers + of_rest)) << row.model << row.projection;
  }
}

// A step and what came before it, in the middle of a period: with the same bits under the same plan.
TEST(MatrixStates, ResumeWithTheSameBits) {
  const test::Folder folder;
  const Case all[] = {{"serial", 1, with_galore(test::few_steps("serial"))},
                      {"ddp", 3, with_galore(test::few_steps("ddp"))},
                      {"fsdp", 4, with_galore(test::few_steps("fsdp"))},
                      {"hsdp", 4, with_galore(test::few_steps("fsdp"))},
                      {"mesh", 8, with_galore(test::mesh(2, 2, 2))}};
  for (Case one : all) {
    SCOPED_TRACE(one.name);
    if (one.name == "hsdp") one.options.replicas = 2;
    TrainResult whole, resumed;
    const std::vector<double> expected =
        test::trained_weights(one, folder.file(one.name + ".safetensors"), whole);
    for (const bool copies : {false, true}) {
      one.options.checkpoint_async = copies;
      const std::string saved = folder.file(fmt::format("{}-{}", one.name, copies));
      EXPECT_TRUE(theory_holds(test::save(one, saved)));
      one.options.resume = saved + "/step-00000002";
      EXPECT_EQ(test::trained_weights(one, folder.file("resumed.safetensors"), resumed), expected);
      one.options.resume.clear();
    }
  }
}

// Files of another number, between which the matrices' states are dealt out.
TEST(MatrixStates, AreConvertedWhole) {
  const test::Folder folder;
  const Case one{"zero", 2, with_galore(test::few_steps("zero"))};
  const TrainResult whole = test::save(one, folder.file("saved"));
  const std::string saved = folder.file("saved") + "/step-00000002";
  convert_checkpoint(saved, read_index(saved), folder.file("converted"), 3, DType::f64);
  EXPECT_EQ(std::ssize(read_index(folder.file("converted")).files), 3);
  test::expect_same_end(test::resume(one, folder.file("converted")), whole, 0);
}

TEST(MatrixStates, OfOtherSubspacesAreRefused) {
  const test::Folder folder;
  Case one{"fsdp", 2, with_galore(test::few_steps("fsdp"))};
  test::save(one, folder.file("saved"));
  one.options.resume = folder.file("saved") + "/step-00000002";
  TrainOptions rank = one.options, projection = one.options;
  rank.galore_rank = 5;
  projection.galore_projection = "left";
  for (const TrainOptions& other : {rank, projection})
    EXPECT_THAT(test::refusal(2, other),
                HasSubstr("was written with --galore-rank 4 --galore-projection std"));
}

TEST(MatrixStates, NeedARankThatAllMatricesHave) {
  TrainOptions options = with_galore(test::few_steps("serial"));
  const int largest = gpt_config(options.model).width;
  options.galore_rank = largest + 1;
  EXPECT_THAT(test::refusal(1, options),
              testing::AllOf(HasSubstr(fmt::format("--galore-rank {} of h.0.", largest + 1)),
                             HasSubstr("a matrix ")));
  options.galore_rank = 0;
  EXPECT_THAT(test::refusal(1, options), HasSubstr("--galore-rank"));
  options = with_galore(test::few_steps("serial"));
  options.galore_period = 0;
  EXPECT_THAT(test::refusal(1, options), HasSubstr("--galore-period"));
  // Routers have as many columns as there are experts.
  options = with_galore(test::run_with_experts("serial"));
  options.galore_rank = 16;
  EXPECT_THAT(test::refusal(1, options), HasSubstr("router"));
}

// Experts on several ranks, and a narrow type with masters.
TEST(MatrixStates, OfExpertsEqualOneRank) {
  const test::Folder folder;
  TrainOptions options = with_galore(test::run_with_experts("serial"));
  options.galore_rank = 2;
  TrainResult serial;
  const std::vector<double> expected =
      test::trained_weights({"serial", 1, options}, folder.file("a.safetensors"), serial);
  options.technique = "moe";
  options.expert_ranks = 2;
  test::expect_equals_serial({"moe", 4, options}, serial, expected, folder.file("b.safetensors"));
}

TEST(MatrixStates, TrainInSixteenBits) {
  TrainOptions options = with_galore(test::few_steps("zero", DType::bf16));
  const TrainResult result = test::run(2, options);
  EXPECT_TRUE(theory_holds(result));
  EXPECT_LT(result.steps.back().loss, result.steps.front().loss);
}

}  // namespace
}  // namespace lockstep
