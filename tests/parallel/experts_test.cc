// Models with experts under data and pipeline parallelism: every plan equals one rank and the reference
// run, with what each router has chosen. New memory holds NaNs.
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "parallel/tags/with_tags.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::run;
using test::run_with_experts;

class WithPoison : public testing::Test {
 protected:
  WithPoison() { poison_host_memory(true); }
  ~WithPoison() override { poison_host_memory(false); }
};

struct ExpertPlan {
  const char* technique;
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const ExpertPlan& plan, std::ostream* out) {
  *out << plan.technique << " on " << plan.ranks;
}

std::vector<Count> layers_with_experts(const Plan& plan, int stage_rank) {
  std::vector<Count> places;  // among the model's layers with experts
  const std::vector<int> rank_of_stage = plan.schedule.rank_of_stage();
  for (int s = 0, place = 0; s < plan.schedule.stages; ++s) {
    const auto [first, count] = layers_of_stage(plan.model.layers, plan.schedule.stages, s);
    for (int layer = first; layer < first + count; ++layer) {
      if (!plan.model.experts.in_layer(layer)) continue;
      if (rank_of_stage[static_cast<std::size_t>(s)] == stage_rank) places.push_back(place);
      ++place;
    }
  }
  return places;
}

// The ranks with the same layers and experts have computed all rows of these, and each row as often as
// there are ranks that split an expert.
void expect_counted_rows(const Plan& plan, const TrainResult& result) {
  std::map<std::pair<int, int>, Count> counted, expected;  // by place along pp and ep
  for (const RankRecord& rank : result.ranks) {
    const std::pair place(plan.place(rank.rank, Axis::pp), plan.expert_rank(rank.rank));
    ASSERT_EQ(rank.expert_rows.has_value(), plan.split(rank.rank).experts.is_divided());
    if (!rank.expert_rows) return;
    counted[place] += *rank.expert_rows;
    if (expected.contains(place)) continue;
    const auto own = plan.model.experts.number / plan.expert_ranks();
    for (const Count layer : layers_with_experts(plan, place.first)) {
      const auto& tokens =
          result.steps.back().tokens_of_experts.at(static_cast<std::size_t>(layer));
      const auto first = tokens.begin() + place.second * own;
      expected[place] += plan.expert_tensor_ranks() * std::reduce(first, first + own);
    }
  }
  EXPECT_EQ(counted, expected);
}

class ExpertPlans : public WithPoison, public testing::WithParamInterface<ExpertPlan> {};

constexpr int golden_steps = 3;

// Those of one rank after these steps.
const std::vector<double>& golden_weights() {
  static const std::vector<double> weights = [] {
    const test::Folder folder;
    TrainOptions options = run_with_experts("serial");
    options.steps = golden_steps;
    options.save = folder.file("one.safetensors");
    run(1, options);
    return test::weights_of(options.save);
  }();
  return weights;
}

TEST_P(ExpertPlans, ReproduceTheGoldenRun) {
  const auto& [technique, ranks, set] = GetParam();
  const test::Folder folder;
  TrainOptions options = run_with_experts(technique);
  options.steps = golden_steps;
  options.save = folder.file("weights.safetensors");
  set(options);
  const TrainResult result = run(ranks, options);
  const std::vector<double> weights = test::weights_of(options.save);
  ASSERT_EQ(weights.size(), golden_weights().size());
  for (std::size_t i = 0; i < weights.size(); ++i)
    ASSERT_NEAR(weights[i], golden_weights()[i], 1e-10) << i;
  EXPECT_TRUE(theory_holds(result));
  EXPECT_GT(result.theory.size(), 5);
  ASSERT_EQ(result.steps.size(), 3);
  test::expect_golden_experts(result, 1e-10);
  expect_counted_rows(plan_of(options, ranks), result);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, ExpertPlans,
    test::sampled<ExpertPlan>({
        {"ddp", 2, [](TrainOptions&) {}},
        {"serial", 1, [](TrainOptions& o) { o.recompute = "full"; }},
        {"zero", 2, [](TrainOptions& o) { o.zero_stage = 1, o.micro_batches = 4; }},
        {"zero", 4, [](TrainOptions& o) { o.zero_stage = 2; }},
        {"fsdp", 4, [](TrainOptions& o) { o.replicas = 2, o.micro_batches = 2; }},
        {"ddp", 3, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.recompute = "full"; }},
        {"pipeline", 2,
         [](TrainOptions& o) {
           o.micro_batches = 4, o.schedule = "interleaved", o.virtual_stages = 2;
           o.recompute = "selective";
         }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "dualpipe-v"; }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-v"; }},
        {"pipeline", 2, [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-h2"; }},
        {"3d", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 2, o.schedule = "zb-h1";
           o.zero_stage = 1;
         }},
        {"ring-attention", 4, [](TrainOptions& o) { o.recompute = "full"; }},
        {"ulysses", 2, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"moe", 4, [](TrainOptions& o) { o.mesh_lengths[Axis::cp] = 2; }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::cp] = o.mesh_lengths[Axis::pp] = o.micro_batches = 2;
           o.expert_ranks = 2, o.zero_stage = 3, o.layout = "contiguous";
         }},
        {"moe", 2, [](TrainOptions& o) { o.micro_batches = 4; }},
        {"moe", 4, [](TrainOptions& o) { o.recompute = "full"; }},
        {"moe", 4,
         [](TrainOptions& o) { o.expert_ranks = 2, o.first_bucket_bytes = o.bucket_bytes = 9000; }},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 1; }},
        {"moe", 4,
         [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = 2, o.micro_batches = 2; }},
        {"moe", 4, [](TrainOptions& o) { o.expert_ranks = 2, o.zero_stage = o.replicas = 2; }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.expert_ranks = 2, o.zero_stage = 3, o.reshard_after_forward = "4";
         }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 4, o.schedule = "dualpipe-v";
         }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 2, o.expert_ranks = 2, o.zero_stage = 3;
           o.sharding = "per-parameter", o.recompute = "full";
         }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.router_weights = "expert", o.token_dispatcher = "deduplicated", o.recompute = "full";
         }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.router_weights = "expert", o.token_dispatcher = "all_gather", o.micro_batches = 2;
           o.zero_stage = 1;
         }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.router_weights = "expert", o.token_dispatcher = "deduplicated";
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.zero_stage = 3;
         }},
        {"moe", 4, [](TrainOptions& o) { o.router_weights = "expert", o.micro_batches = 2; }},
        {"tp", 2, [](TrainOptions& o) { o.micro_batches = 2; }},
        {"sp", 4, [](TrainOptions& o) { o.keep_gathered = true; }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.recompute = "full";
         }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::cp] = 2, o.sequence_parallel = true;
           o.zero_stage = 3, o.micro_batches = 2;
         }},
        {"moe", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.expert_tensor_ranks = 1;
         }},
        {"moe", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::pp] = o.micro_batches = 2;
           o.zero_stage = 1, o.schedule = "zb-h1";
         }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

// Plans in which rows travel otherwise, on nodes of two ranks; and the same with all-to-all.
struct OtherWay {
  const char* dispatcher;
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const OtherWay& way, std::ostream* out) {
  *out << way.dispatcher << " on " << way.ranks;
}

// A batch that nothing divides, so that ranks have different numbers of rows.
TrainOptions uneven_run(void (*set)(TrainOptions&)) {
  TrainOptions options = run_with_experts("moe");
  options.steps = 3;
  options.validation_fraction = 0.2;
  options.global_batch = 7;
  options.expert_capacity = 1.5;
  options.token_drop_policy = "probs";
  set(options);
  return options;
}

// With checks of tags.
class OtherWays : public WithPoison, public testing::WithParamInterface<OtherWay> {
 protected:
  OtherWays() { check_tags(true); }
};

TEST_P(OtherWays, HaveTheSameBits) {
  const auto& [dispatcher, ranks, set] = GetParam();
  TrainOptions options = uneven_run(set);
  LaunchOptions world{.ranks = ranks, .timeout_s = 30, .fault = {}};
  world.links.ranks_per_node = 2;
  const TrainResult direct = run(world, options);
  options.token_dispatcher = dispatcher;
  const TrainResult other = run(world, options);
  EXPECT_TRUE(theory_holds(direct));
  EXPECT_TRUE(theory_holds(other));
  EXPECT_GT(other.theory.size(), 5);
  ASSERT_EQ(other.steps.size(), 3);
  for (std::size_t i = 0; i < direct.steps.size(); ++i) {
    EXPECT_EQ(other.steps[i].loss, direct.steps[i].loss);
    EXPECT_EQ(other.steps[i].grad_norm, direct.steps[i].grad_norm);
  }
  EXPECT_EQ(other.validation.at(0).loss, direct.validation.at(0).loss);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, OtherWays,
    test::sampled<OtherWay>({
        {"two_level", 4, [](TrainOptions&) {}},
        {"padded", 4, [](TrainOptions& o) { o.recompute = "full"; }},
        {"two_level", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::cp] = 2, o.expert_ranks = 4, o.zero_stage = 3;
           o.recompute = "full";
         }},
        {"two_level", 4,
         [](TrainOptions& o) {
           o.expert_ranks = 2, o.micro_batches = 3, o.expert_capacity = 0, o.zero_stage = 1;
           o.global_batch = 13;
         }},
        {"padded", 4,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::pp] = 2, o.micro_batches = 4, o.schedule = "dualpipe-v";
           o.global_batch = 9;
         }},
        {"two_level", 8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.expert_ranks = 2;
         }},
        {"padded", 2, [](TrainOptions& o) { o.dtype = DType::bf16, o.micro_batches = 2; }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

// They add up in another order than where the weights multiply at the tokens.
TEST_P(OtherWays, AreNearIfWeightsMultiplyAtExperts) {
  const auto& [_, ranks, set] = GetParam();
  for (const char* once : {"deduplicated", "all_gather"}) {
    TrainOptions options = uneven_run(set);
    const TrainResult direct = run(ranks, options);
    options.router_weights = "expert";
    options.token_dispatcher = once;
    const TrainResult other = run(ranks, options);
    EXPECT_TRUE(theory_holds(other));
    ASSERT_EQ(other.steps.size(), 3);
    const double tolerance = options.dtype == DType::f64 ? 1e-10 : 0.01;
    for (std::size_t i = 0; i < direct.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss, direct.steps[i].loss, tolerance);
      EXPECT_NEAR(other.steps[i].grad_norm / direct.steps[i].grad_norm, 1, tolerance);
    }
    EXPECT_NEAR(other.validation.at(0).loss, direct.validation.at(0).loss, tolerance);
  }
}

// A balancing loss, shared experts, dropout, batches that nothing divides.
class OtherExperts : public WithPoison, public testing::WithParamInterface<const char*> {
 protected:
  TrainOptions options(const std::string& technique) const {
    const auto path = folder_.file("config.json");
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
    config.update(nlohmann::json::parse(GetParam()));
    std::ofstream(path) << config;
    TrainOptions run = run_with_experts(technique);
    run.model = path;
    run.init.clear();
    run.steps = 3;
    run.global_batch = 7;
    run.validation_fraction = 0.2;
    run.dropout = 0.1;
    return run;
  }
  test::Folder folder_;
};

TEST_P(OtherExperts, EqualOneRank) {
  const TrainResult one = run(1, options("serial"));
  TrainOptions both = options("3d");
  both.mesh_lengths[Axis::pp] = 2;
  both.micro_batches = 3;
  both.recompute = "full";
  TrainOptions sharded = options("fsdp");
  sharded.micro_batches = 2;
  TrainOptions divided = options("moe");
  divided.expert_ranks = 2;
  divided.recompute = "selective";
  TrainOptions split = divided;
  split.mesh_lengths[Axis::tp] = 2;
  TrainOptions by_sequence = split;
  by_sequence.sequence_parallel = by_sequence.keep_gathered = true;
  TrainOptions whole = by_sequence;
  whole.expert_tensor_ranks = 1;
  for (const TrainResult& other : {run(4, both), run(2, sharded), run(4, divided), run(4, split),
                                   run(4, by_sequence), run(4, whole)}) {
    test::expect_same_steps(other, one, 1e-10);
    EXPECT_TRUE(theory_holds(other));
    EXPECT_NEAR(other.validation.at(0).loss, one.validation.at(0).loss, 1e-10);
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].aux_loss.value(), one.steps[i].aux_loss.value(), 1e-10);
      EXPECT_EQ(other.steps[i].tokens_of_experts, one.steps[i].tokens_of_experts);
    }
  }
}

// Shared experts that run while the rows of the others travel.
TEST_P(OtherExperts, OverlapWithTheSameBits) {
  TrainOptions one_after_another = options("moe");
  if (std::string_view(GetParam()).find("n_shared_experts") == std::string_view::npos) {
    one_after_another.shared_expert_overlap = true;
    const std::string refusal = test::refusal(4, one_after_another);
    EXPECT_TRUE(refusal.starts_with("--shared-expert-overlap of a model without shared experts"))
        << refusal;
    return;
  }
  int compared = 0;
  for (const char* weights_at : {"source", "expert"})
    for (const bool split : {false, true}) {
      one_after_another.router_weights = weights_at;
      one_after_another.mesh_lengths[Axis::tp] = split ? 2 : 1;
      one_after_another.sequence_parallel = split;
      TrainOptions overlapped = one_after_another;
      overlapped.shared_expert_overlap = true;
      const TrainResult is = run(4, overlapped), was = run(4, one_after_another);
      EXPECT_TRUE(theory_holds(is));
      for (std::size_t i = 0; i < was.steps.size(); ++i, ++compared) {
        EXPECT_EQ(is.steps[i].loss, was.steps[i].loss);
        EXPECT_EQ(is.steps[i].grad_norm, was.steps[i].grad_norm);
      }
    }
  EXPECT_EQ(compared, 12);
}

TEST_P(OtherExperts, TrainInFewerBits) {
  const TrainResult exact = run(1, options("serial"));
  for (const char* technique : {"ddp", "moe"})
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::f32, 1e-5), {DType::bf16, 0.01}, {DType::f16, 0.01}}) {
      TrainOptions narrow = options(technique);
      narrow.dtype = dtype;
      const TrainResult result = run(2, narrow);
      EXPECT_TRUE(theory_holds(result));
      for (std::size_t i = 0; i < exact.steps.size(); ++i)
        EXPECT_NEAR(result.steps[i].loss / exact.steps[i].loss, 1, tolerance) << name_of(dtype);
    }
}

// What is computed again has the same choices and the same bits.
TEST_P(OtherExperts, HaveTheSameBitsIfComputedAgain) {
  TrainOptions kept = options("moe");
  kept.mesh_lengths[Axis::tp] = 2;
  const TrainResult was = run(4, kept);
  for (const char* recompute : {"selective", "full"}) {
    TrainOptions again = kept;
    again.recompute = recompute;
    const TrainResult is = run(4, again);
    for (std::size_t i = 0; i < was.steps.size(); ++i) {
      EXPECT_EQ(is.steps[i].loss, was.steps[i].loss) << recompute;
      EXPECT_EQ(is.steps[i].grad_norm, was.steps[i].grad_norm) << recompute;
      EXPECT_EQ(is.steps[i].tokens_of_experts, was.steps[i].tokens_of_experts) << recompute;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Routers, OtherExperts,
    testing::Values(
        R"({"router": "sigmoid", "n_shared_experts": 1, "router_aux_loss_coef": 0.1})",
        R"({"router": "softmax_unnormalized", "experts_per_token": 1, "n_experts": 6, "moe_every": 1})",
        R"({"experts_per_token": 4, "expert_width": 96, "router_aux_loss_coef": 1})"),
    [](const auto& test) { return std::to_string(test.index); });

TEST_F(WithPoison, RoutersWithGroupsAndZLossEqualOneRank) {
  const auto options = [](const std::string& technique) {
    TrainOptions run = run_with_experts(technique);
    run.steps = 3;
    run.router_groups = 2;
    run.router_z_loss = 0.01;
    return run;
  };
  TrainOptions stages = options("pipeline"), split = options("moe");
  stages.micro_batches = 2;
  split.mesh_lengths[Axis::tp] = 2;
  split.sequence_parallel = true;
  const TrainResult one = run(1, options("serial"));
  for (const TrainResult& other :
       {run(2, stages), run(2, options("ring-attention")), run(4, options("moe")), run(4, split)}) {
    test::expect_same_steps(other, one, 1e-10);
    EXPECT_NEAR(other.steps[2].router_z_loss.value(), one.steps[2].router_z_loss.value(), 1e-10);
  }
}

// What is dropped depends on the parts of a batch: two ranks with one micro-batch are one rank with
// two.
TEST_F(WithPoison, TokensBeyondTheCapacityAreDropped) {
  TrainOptions one = run_with_experts("serial");
  one.steps = 3;
  one.expert_capacity = 1;
  one.micro_batches = 2;
  for (const auto& [policy, technique] : {std::pair("probs", "fsdp"),
                                          {"position", "moe"},
                                          {"probs", "moe"},
                                          {"probs", "tp"},
                                          {"position", "pipeline"}}) {
    TrainOptions two = one;
    two.technique = technique;
    // Ranks that split layers or stages have whole micro-batches.
    const bool are_replicas = two.technique == "fsdp" || two.technique == "moe";
    if (are_replicas) two.micro_batches = 1;
    one.token_drop_policy = two.token_drop_policy = policy;
    const TrainResult serial = run(1, one), sharded = run(2, two);
    test::expect_same_steps(sharded, serial, 1e-10);
    EXPECT_TRUE(theory_holds(serial));
    EXPECT_TRUE(theory_holds(sharded));
    for (std::size_t i = 0; i < serial.steps.size(); ++i) {
      EXPECT_GT(serial.steps[i].dropped_share, 0.05);
      EXPECT_EQ(serial.steps[i].dropped_share, sharded.steps[i].dropped_share);
      EXPECT_EQ(serial.steps[i].tokens_of_experts, sharded.steps[i].tokens_of_experts);
    }
  }
}

TEST(Experts, RefuseOptionsOfRoutersThatCannotBe) {
  const auto expect = [](void (*set)(TrainOptions&), const char* said) {
    TrainOptions options = run_with_experts("serial");
    set(options);
    EXPECT_NE(test::refusal(1, options).find(said), std::string::npos) << said;
  };
  expect([](TrainOptions& o) { o.router_groups = 3; }, "--router-num-groups 3 of 4 experts");
  expect([](TrainOptions& o) { o.router_chosen_groups = 2; }, "--router-group-topk 2 of 1 groups");
  expect([](TrainOptions& o) { o.router_groups = 4; }, "--router-group-topk 1 of 4 groups");
  expect([](TrainOptions& o) { o.router_z_loss = -1; }, "--router-z-loss-coef");
  expect([](TrainOptions& o) { o.token_drop_policy = "position"; }, "without a capacity");
  expect([](TrainOptions& o) { o.token_drop_policy = "all", o.expert_capacity = 1; },
         "--token-drop-policy");
  expect([](TrainOptions& o) { o.expert_capacity = 1; }, "which tokens are dropped");
  expect([](TrainOptions& o) { o.model = "nano", o.init.clear(), o.router_z_loss = 1; },
         "options of routers for a model without experts");
}

TEST(Experts, AreRefusedWithParameterServers) {
  EXPECT_NE(test::refusal(2, run_with_experts("ps"))
                .find("parameter servers do not train models with experts"),
            std::string::npos);
}

TEST(Experts, AreCheckedInTheModelsFile) {
  const test::Folder folder;
  const std::string path = folder.file("config.json");
  int refused = 0;
  const auto expect = [&](const char* change, const char* said) {
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
    config.merge_patch(nlohmann::json::parse(change));
    std::ofstream(path) << config;
    TrainOptions options = run_with_experts("serial");
    options.model = path;
    EXPECT_NE(test::refusal(1, options).find(said), std::string::npos) << said;
    ++refused;
  };
  expect(R"({"experts_per_token": 5})", "5 experts per token of 4 experts; use 1 to 4");
  expect(R"({"experts_per_token": null})", "no \"experts_per_token\"");
  expect(R"({"n_experts": null})", "and no \"n_experts\"");
  expect(R"({"n_experts": 0})", "\"n_experts\" is 0");
  expect(R"({"moe_every": 5})", "experts in every 5th of 4 layers");
  expect(R"({"router": "noisy"})",
         "\"router\" is \"noisy\"; only softmax, softmax_unnormalized, sigmoid");
  expect(R"({"router_aux_loss_coef": -1})", "\"router_aux_loss_coef\" is -1");
  expect(R"({"n_shared_experts": -1})", "\"n_shared_experts\" is -1");
  expect(R"({"expert_width": 2.5})", "\"expert_width\" is 2.5");
  EXPECT_EQ(refused, 9);
}

}  // namespace
}  // namespace lockstep
