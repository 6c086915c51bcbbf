// Plans: which are refused, how they describe themselves, and that a file restores the same plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/weights.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/placements.h"
#include "parallel/rank/rank_model.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::Folder;
using test::refusal;
using testing::HasSubstr;

TrainOptions mesh_of(const char* technique, std::optional<int> tp, std::optional<int> pp,
                     std::optional<int> dp) {
  TrainOptions options;
  options.technique = technique;
  options.mesh_lengths[Axis::tp] = tp;
  options.mesh_lengths[Axis::pp] = pp;
  options.mesh_lengths[Axis::dp] = dp;
  return options;
}

TEST(Options, HaveOneFlagAndOneKeyEach) {
  TrainOptions options;
  std::set<std::string> flags, keys;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options) {
      EXPECT_TRUE(flags.insert(option.flag).second) << option.flag;
      EXPECT_TRUE(keys.insert(option.json_key()).second) << option.json_key();
      if (!option.alias.empty()) {
        EXPECT_TRUE(flags.insert(option.alias).second) << option.alias;
      }
      EXPECT_FALSE(option.help.empty()) << option.flag;
      for (const std::string_view technique_name : group.techniques) technique(technique_name);
    }
  EXPECT_GT(flags.size(), 40U);
}

// An option accepts the text and JSON that it gives of its value; drawn values are allowed.
TEST(Options, TakeBackWhatTheySay) {
  TrainOptions options;
  options.slow_ranks = {{1, 2.5}, {3, 1.25}};
  int compared = 0;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options) {
      const nlohmann::ordered_json json = json_of(option);
      if (json.is_null()) continue;
      set_from_json(option, json);
      EXPECT_EQ(json_of(option), json) << option.flag;
      for (const std::string& text : option.drawn) {
        set_from_text(option, text);
        check(option);
        const nlohmann::ordered_json drawn = json_of(option);
        set_from_json(option, drawn);
        EXPECT_EQ(json_of(option), drawn) << option.flag;
      }
      ++compared;
    }
  EXPECT_GT(compared, 40);
}

TEST(Plan, OfAPresetHasOneFreeAxis) {
  const auto lengths = [](const char* technique, int ranks) {
    const Plan plan = plan_of(mesh_of(technique, {}, {}, {}), ranks);
    return std::tuple(plan.length(Axis::tp), plan.length(Axis::pp), plan.length(Axis::dp));
  };
  EXPECT_EQ(lengths("serial", 1), std::tuple(1, 1, 1));
  EXPECT_EQ(lengths("ddp", 6), std::tuple(1, 1, 6));
  EXPECT_EQ(lengths("tp", 4), std::tuple(4, 1, 1));
  EXPECT_EQ(lengths("sp", 2), std::tuple(2, 1, 1));
  EXPECT_EQ(lengths("pipeline", 4), std::tuple(1, 4, 1));
  EXPECT_EQ(lengths("3d", 4), std::tuple(1, 1, 4));
  EXPECT_TRUE(plan_of(mesh_of("sp", {}, {}, {}), 2).split(1).by_sequence);
}

TEST(Plan, RefusalsNameTheRuleAndWhatWouldWork) {
  EXPECT_THAT(refusal(6, mesh_of("3d", 4, {}, {})), HasSubstr("use --ranks 4 or 8"));
  EXPECT_THAT(refusal(6, mesh_of("3d", 2, 2, 2)), HasSubstr("use --ranks 8"));
  EXPECT_THAT(refusal(4, mesh_of("tp", 2, {}, {})), HasSubstr("--tp 2 with 4 ranks"));
  EXPECT_THAT(refusal(4, mesh_of("3d", 0, {}, {})), HasSubstr("--tp 0; use 1 or more"));
  EXPECT_THAT(refusal(8, mesh_of("pipeline", {}, {}, {})),
              HasSubstr("at most 4 ranks with 1 stages each"));
  TrainOptions options = mesh_of("ddp", {}, {}, {});
  options.global_batch = 3;
  options.micro_batches = 2;
  EXPECT_THAT(refusal(4, options), HasSubstr("--global-batch 8"));
}

TEST(Plan, SurvivesItsFile) {
  const Folder folder;
  TrainOptions options = test::golden_run("3d");
  options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::pp] = 2;
  options.schedule = "zb-h1";
  options.micro_batches = 4;
  options.reduce_dtype = DType::f32;
  options.overlap = false;
  options.bucket_bytes = 1234;
  options.slow_ranks = {{1, 1.5}};
  const Plan plan = plan_of(options, 8);
  write_file(folder.file("plan.json"), plan_json(plan).dump());
  const PlanFile file = read_plan(folder.file("plan.json"));
  const Plan again = plan_of(file.options, file.ranks);
  EXPECT_EQ(plan_json(again), plan_json(plan));
  EXPECT_EQ(again.schedule, plan.schedule);

  const auto refused = [&](const std::string& text, const std::string& part) {
    write_file(folder.file("bad.json"), text);
    try {
      read_plan(folder.file("bad.json"));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      EXPECT_THAT(error.what(), HasSubstr("bad.json"));
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  refused("", "not a plan of the schema");
  refused("[1]", "not a plan of the schema");
  refused(R"({"schema": "lockstep.train/1"})", "not a plan of the schema");
  refused(R"({"schema": "lockstep.plan/1", "ranks": 1, "options": {}})", "'technique' is missing");
  const std::string begin = R"({"schema": "lockstep.plan/1", "technique": "ddp", "ranks": )";
  refused(begin + R"(0, "options": {}})", "'ranks' is not a number");
  refused(begin + R"(2, "options": {"servers": 1}})", "ddp has no option 'servers'");
  refused(begin + R"(2, "options": {"steps": "many"}})", "--steps many");
  refused(begin + R"(2, "options": {"steps": [1]}})", "--steps [1]");
}

TEST(Plan, RecordsOptionsThatHaveAnEffect) {
  const auto keys = [](const TrainOptions& options, int ranks) {
    return options_json(plan_of(options, ranks));
  };
  const auto ddp = keys(mesh_of("ddp", {}, {}, {}), 2);
  for (const char* key : {"servers", "staleness", "schedule", "tp", "dropout_streams"})
    EXPECT_FALSE(ddp.contains(key)) << key;
  for (const char* key : {"bucket_bytes", "algorithm", "lr", "min_lr", "reduce_dtype"})
    EXPECT_TRUE(ddp.contains(key)) << key;
  const auto tp = keys(mesh_of("tp", {}, {}, {}), 2);
  EXPECT_EQ(tp["tp"], 2);
  EXPECT_FALSE(tp.contains("keep_gathered"));
}

// Every element of the model is counted by one rank of each replica.
TEST(Placement, HasEachElementOnce) {
  for (const bool by_sequence : {false, true})
    for (const int tp : {1, 2, 4}) {
      TrainOptions options = mesh_of("3d", tp, 2, 2);
      options.sequence_parallel = by_sequence;
      options.vocabulary_multiple = 48;
      const Plan plan = plan_of(options, 4 * tp);
      const std::vector<Parameter> whole = whole_parameters(plan.model);
      std::vector<int> times(static_cast<std::size_t>(plan.model.parameter_count()));
      for (int rank = 0; rank < plan.ranks; ++rank) {
        if (plan.place(rank, Axis::dp) != 0) continue;
        const RankOutline outline(plan, rank);
        for_each_counted_run(
            outline.parameters(), whole,
            [&](std::size_t number, Count in_whole, Count, Count count) {
              for (Count i = 0; i < count; ++i)
                ++times[static_cast<std::size_t>(whole[number].offset + in_whole + i)];
            });
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << tp << by_sequence;
    }
}

TEST(Placement, SaysWhatIsShardedReplicatedAndPartial) {
  const auto placed = [](bool by_sequence, const std::string& name, Axis axis) {
    TrainOptions options = mesh_of("3d", 2, 2, 2);
    options.sequence_parallel = by_sequence;
    for (const PlacedColumns& columns : placements_of(plan_of(options, 8), 0))
      if (columns.parameter == name) return columns.placement[axis].placed;
    ADD_FAILURE() << name;
    return Placed::sharded;
  };
  using enum Placed;
  EXPECT_EQ(placed(false, "h.0.ln_1.weight", Axis::tp), replicated);
  EXPECT_EQ(placed(true, "h.0.ln_1.weight", Axis::tp), partial);
  EXPECT_EQ(placed(true, "h.0.attn.c_attn.weight", Axis::tp), sharded);
  EXPECT_EQ(placed(true, "h.0.attn.c_proj.bias", Axis::tp), partial);
  EXPECT_EQ(placed(false, "wte.weight", Axis::pp), partial);
  EXPECT_EQ(placed(false, "wpe.weight", Axis::pp), sharded);
  EXPECT_EQ(placed(false, "h.0.ln_1.weight", Axis::dp), partial);
}

// For a model and a cluster too large for any test.
TEST(Prediction, NeedsNoStorage) {
  TrainOptions options = mesh_of("3d", 8, 64, {});
  options.model = "gpt3";
  options.global_batch = 3072;
  options.micro_batches = 96;
  options.dtype = DType::bf16;
  const Plan plan = plan_of(options, 16384);
  const Prediction prediction = predict(plan, 16383);
  EXPECT_EQ(prediction.in_flight->value, 1);
  EXPECT_GT(prediction.total->sent_bytes, std::int64_t{1} << 35);
  Count counted = 0;
  for (const int rank : plan.mesh.group_of(0, {Axis::tp, Axis::pp})) {
    const RankOutline outline(plan, rank);
    for (const Range& range : outline.parameters().counted()) counted += range.count;
  }
  // Without the 7 rows that pad the vocabulary to a multiple of the ranks that split it.
  EXPECT_EQ(counted, plan.model.parameter_count());
  EXPECT_THROW(predict(plan, 16384), Error);
  EXPECT_THROW(predict(plan_of(mesh_of("ps", {}, {}, {}), 3), 0), Error);
}

}  // namespace
}  // namespace lockstep
