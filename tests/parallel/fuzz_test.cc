// Random plans equal one rank and their predictions; so do plans that once did not. Faults are
// found, and failing plans are shrunk. LOCKSTEP_FUZZ_PLANS sets the number of plans,
// LOCKSTEP_FUZZ_SEED the seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/fuzz/check_case.h"
#include "parallel/fuzz/coverage.h"
#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/text.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

int number_from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::stoi(text) : otherwise;
}

class Fuzz : public testing::Test {
 protected:
  Fuzz() { poison_host_memory(true); }
  ~Fuzz() override { poison_host_memory(false); }
};

TEST_F(Fuzz, PlansEqualOneRankAndTheirPredictions) {
  const int plans = number_from_environment("LOCKSTEP_FUZZ_PLANS", LOCKSTEP_THOROUGH ? 20 : 8);
  const auto seed = static_cast<std::uint64_t>(number_from_environment("LOCKSTEP_FUZZ_SEED", 1));
  Coverage coverage;
  for (int number = 0; number < plans; ++number) {
    const FuzzCase drawn = draw_case(seed, number, {});
    const CaseCheck check = check_case_on_threads(drawn, {.fault = {}});
    EXPECT_THAT(check.differences, IsEmpty()) << "plan " << number << ": " << case_json(drawn);
    EXPECT_GT(check.compared, 20) << "plan " << number;
    coverage.add(drawn, check);
    if (HasFailure()) break;
  }
  for (const Coverage::Row& row : coverage.rows()) {
    EXPECT_LE(row.values, row.all_values) << row.flag;
    EXPECT_LE(row.pairs, row.all_pairs) << row.flag;
    if (row.flag == "lr") {
      EXPECT_GT(row.pairs, 10);
    }
  }
}

TEST_F(Fuzz, CasesThatWereWrongOnce) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_FUZZ_CASES)) {
    ++cases;
    const CaseCheck check = check_case_on_threads(read_case(entry.path()), {.fault = {}});
    EXPECT_THAT(check.differences, IsEmpty()) << entry.path();
    EXPECT_GT(check.compared, 20) << entry.path();
  }
  EXPECT_GT(cases, 0);
}

TEST_F(Fuzz, TheSameSeedGivesTheSamePlansAndTheirFiles) {
  const test::Folder folder;
  for (int number = 0; number < 20; ++number) {
    const FuzzCase drawn = draw_case(7, number, {});
    const std::string json = case_json(drawn);
    EXPECT_EQ(json, case_json(draw_case(7, number, {})));
    write_file(folder.file("case.json"), json);
    EXPECT_EQ(case_json(read_case(folder.file("case.json"))), json);
  }
  EXPECT_NE(case_json(draw_case(7, 0, {})), case_json(draw_case(8, 0, {})));
  for (int number = 0; number < 5; ++number)
    EXPECT_EQ(draw_case(1, number, {.most_ranks = 6, .all_ranks = true}).last().ranks, 6);
}

// What the minutes of fuzzing draw. Whether steps are skipped is known only after a run.
TEST_F(Fuzz, EveryKindIsDrawn) {
  Coverage coverage;
  for (const auto& [plans, limits] : {std::pair{450, DrawLimits{}}, {50, {.experts = true}}})
    for (int number = 0; number < plans; ++number)
      coverage.add(draw_case(1, number, limits),
                   {.compared = 1, .skipped_steps = 1, .differences = {}});
  EXPECT_GT(coverage.kinds().size(), 10U);
  for (const Coverage::Kind& kind : coverage.kinds()) EXPECT_GE(kind.cases, 3) << kind.name;
  for (const Coverage::Row& row : coverage.rows()) EXPECT_GE(row.values, 1) << row.flag;
}

TEST_F(Fuzz, PlansWithExpertsEqualOneRank) {
  const int plans = LOCKSTEP_THOROUGH ? 20 : 8;
  for (int number = 0; number < plans && !HasFailure(); ++number) {
    const FuzzCase drawn = draw_case(1, number, {.experts = true});
    const CaseCheck check = check_case_on_threads(drawn, {.fault = {}});
    EXPECT_THAT(check.differences, IsEmpty()) << "plan " << number << ": " << case_json(drawn);
    EXPECT_GT(check.compared, 20) << "plan " << number;
  }
}

// Of experts of so few columns in eight layers, rounding alone changed a gradient by 1.1e-10 of itself.
TEST_F(Fuzz, DrawsNoExpertsOfFewColumnsInManyLayers) {
  FuzzCase fuzz_case{.model = {}, .plans = {{}}};
  fuzz_case.last().options.dtype = DType::f64;
  const auto is_drawn = [&](int width, int layers, int experts) {
    fuzz_case.model.width = width, fuzz_case.model.layers = layers;
    fuzz_case.model.experts.number = experts;
    return is_stable(fuzz_case);
  };
  EXPECT_TRUE(is_drawn(4, 8, 0));
  EXPECT_TRUE(is_drawn(4, 4, 4));
  EXPECT_TRUE(is_drawn(8, 8, 4));
  EXPECT_FALSE(is_drawn(4, 5, 4));
  int many = 0;
  for (int number = 0; number < 300; ++number) {
    const FuzzCase drawn = draw_case(3, number, {.experts = true});
    EXPECT_TRUE(is_stable(drawn)) << number;
    many += drawn.model.layers > 4;
  }
  EXPECT_GT(many, 30);
}

TEST_F(Fuzz, DrawsExpertsAndTheirDivision) {
  std::map<int, int> plans;  // by ranks that divide experts
  std::map<std::string, int> dispatchers;
  std::map<bool, int> split;  // between ranks along tp; with whole experts on each
  int overlapped = 0, with_pairs = 0;
  std::set<std::string> models;
  for (int number = 0; number < 300; ++number) {
    const FuzzCase drawn = draw_case(1, number, {.experts = true});
    ASSERT_TRUE(drawn.model.experts.exist());
    ++plans[drawn.last().options.expert_ranks.value_or(1)];
    ++dispatchers[drawn.last().options.token_dispatcher];
    overlapped += drawn.last().options.shared_expert_overlap;
    with_pairs += drawn.last().options.overlap_pairs;
    if (drawn.last().options.mesh_lengths[Axis::tp].value_or(1) > 1)
      ++split[!drawn.last().options.expert_tensor_ranks];
    models.insert(gpt_config_json(drawn.model));
  }
  EXPECT_GT(models.size(), 150U);
  for (const bool all : {false, true}) EXPECT_GE(split[all], 5) << all;
  for (const int ranks : {1, 2, 4}) EXPECT_GE(plans[ranks], 3) << ranks;
  for (const char* name : {"all_to_all", "two_level", "deduplicated", "all_gather"})
    EXPECT_GE(dispatchers[name], 5) << name;
  EXPECT_GE(overlapped, 5);
  EXPECT_GE(with_pairs, 1);
}

TEST_F(Fuzz, SchedulesOfItsOwnCanBeRun) {
  std::set<std::string> texts;
  for (int seed = 0; seed < 40; ++seed) {
    const PipelineShape shape{.ranks = 1 + seed % 4,
                              .micro_batches = 1 + seed % 5,
                              .virtual_stages = 1 + seed % 3,
                              .group = 0};
    const std::string text = draw_schedule(static_cast<std::uint64_t>(seed), shape);
    const Schedule schedule = schedule_from_csv(text, "drawn");
    EXPECT_NO_THROW(check(schedule)) << text;
    EXPECT_EQ(schedule.stages, shape.stages());
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 35U);
}

TEST_F(Fuzz, SaysThatNoPlanHasSoManyRanks) {
  EXPECT_THROW(draw_case(1, 0, {.most_ranks = 23, .all_ranks = true, .most_tries = 1000}), Error);
}

// Mistakes that no test of a single technique would show: a value that one rank loses.
TEST_F(Fuzz, FindsWhatIsPlanted) {
  FuzzCase drawn = draw_case(1, 0, {});
  drawn.plans = {{.options = {}, .ranks = 2}};
  drawn.last().options.technique = "ddp";
  drawn.last().options.global_batch = 4;
  drawn.last().options.steps = 2;
  const auto differences = [&](const char* fault) {
    return check_case_on_threads(drawn, {.timeout_s = 2, .fault = parse_fault(fault)});
  };
  const CaseCheck nan = differences("rank=1,op=1,kind=nan");
  ASSERT_FALSE(nan.differences.empty());
  EXPECT_THAT(nan.differences.front(), HasSubstr("step 0: loss"));
  EXPECT_THAT(nan.differences.front(), HasSubstr("gradient norm nan"));
  EXPECT_TRUE(nan.has_ended);
  const CaseCheck skip = differences("rank=1,op=1,kind=skip");
  ASSERT_FALSE(skip.differences.empty());
  EXPECT_TRUE(skip.has_ended);
  EXPECT_THAT(skip.differences.front(), HasSubstr("rank 1"));
}

TEST_F(Fuzz, ShrinksToWhatMatters) {
  FuzzCase large;
  for (int number = 0;; ++number) {
    large = draw_case(3, number, {});
    const TrainOptions& o = large.last().options;
    if (o.technique == "3d" && o.mesh_lengths[Axis::tp] == 2 && *o.mesh_lengths[Axis::dp] > 2 &&
        large.plans.size() > 2 && large.model.layers > 2 && o.dropout > 0)
      break;
  }
  int tried = 0;
  const FuzzCase smallest = shrink(large, [&](const FuzzCase& fuzz_case) {
    ++tried;
    const TrainOptions& o = fuzz_case.last().options;
    return o.mesh_lengths[Axis::tp].value_or(1) == 2 && o.dropout > 0;
  });
  EXPECT_EQ(smallest.last().ranks, 2);
  EXPECT_GT(smallest.last().options.dropout, 0);
  EXPECT_EQ(smallest.last().options.micro_batches, 1);
  EXPECT_EQ(smallest.last().options.global_batch, 1);
  EXPECT_EQ(smallest.model.layers, 1);
  EXPECT_EQ(smallest.model.vocabulary, 123);
  EXPECT_EQ(smallest.plans.size(), 1U);
  EXPECT_EQ(smallest.last().options.steps, 1);
  EXPECT_LT(tried, 500);
}

TEST_F(Fuzz, FilesOfCasesAreChecked) {
  const test::Folder folder;
  const std::string path = folder.file("case.json");
  const auto fault_of = [&](const std::string& text) -> std::string {
    write_file(path, text);
    try {
      read_case(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "";
  };
  using nlohmann::ordered_json;
  const ordered_json right = ordered_json::parse(case_json(draw_case(1, 0, {})));
  const auto with = [&](const char* key, const ordered_json& value) {
    ordered_json json = right;
    json[key] = value;
    return fault_of(json.dump());
  };
  EXPECT_EQ(fault_of(right.dump()), "");
  EXPECT_THAT(fault_of("{"), HasSubstr("not a case"));
  EXPECT_THAT(fault_of("[]"), HasSubstr("not a case"));
  EXPECT_THAT(with("schema", "lockstep.plan/1"), HasSubstr("not a case"));
  EXPECT_THAT(with("seed", -1), HasSubstr("'seed'"));
  EXPECT_THAT(with("seed", "one"), HasSubstr("'seed'"));
  EXPECT_THAT(with("plan", 3), HasSubstr("not a plan"));
  ordered_json plan = right["plan"];
  plan["options"]["steps"] = 5;
  EXPECT_THAT(with("before", ordered_json::array({plan, plan})), HasSubstr("do not grow"));
  EXPECT_THAT(with("before", plan), HasSubstr("do not grow"));
  plan["options"]["steps"] = 6;
  EXPECT_THAT(with("plan", plan), HasSubstr("at most 5"));
  plan["technique"] = "pipeline";
  plan["options"] = {{"schedule_file", "schedule"}};
  EXPECT_THAT(with("plan", plan), HasSubstr("'schedule' has no text"));
  for (const char* key : {"seed", "model", "plan"}) {
    ordered_json without = right;
    without.erase(key);
    EXPECT_THAT(fault_of(without.dump()), HasSubstr(key));
  }
}

}  // namespace
}  // namespace lockstep
