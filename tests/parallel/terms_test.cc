// What the parts of a plan state adds up to its prediction, in any order.
#include "parallel/plan/terms.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "parallel/fuzz/fuzz_case.h"
#include "parallel/predict/predict.h"

namespace lockstep {
namespace {

const std::optional<Figure>& peak(const Prediction& prediction, MemoryUse use) {
  return prediction.peak_bytes[static_cast<std::size_t>(use)];
}

// A plan in which every part states something: gpt2's tied embedding lies on two ranks, inputs are
// kept in parts, and their parts and the optimizer's states are offloaded.
Plan plan_with_all_parts() {
  TrainOptions options;
  options.technique = "3d";
  options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::cp] = options.mesh_lengths[Axis::pp] =
      2;
  options.micro_batches = 2;
  options.global_batch = 8;
  options.zero_stage = 2;
  options.dtype = DType::bf16;
  options.validation_fraction = 0.1;
  options.recompute = "full";
  options.partition_activations = options.offload_activations = true;
  options.offload = "optimizer";
  options.checkpoint = "checkpoints";
  options.checkpoint_async = true;
  return plan_of(options, 16);
}

// Plans of the fuzzer, as their shapes differ, and that one.
std::vector<Plan> plans() {
  std::vector<Plan> plans = {plan_with_all_parts()};
  for (std::int64_t number = 0; number < 60; ++number) {
    const FuzzCase drawn = draw_case(5, number, {});
    Plan plan = plan_of(drawn.last(), drawn.model);
    if (!plan.has_servers()) plans.push_back(std::move(plan));
  }
  return plans;
}

TEST(Terms, AddUpInAnyOrder) {
  std::mt19937 random(1);
  for (const Plan& plan : plans()) {
    const int rank = plan.ranks - 1;
    const Prediction expected = predict(plan, rank);
    std::vector<Terms> parts = terms_of(plan, rank);
    for (int order = 0; order < 5; ++order) {
      std::ranges::shuffle(parts, random);
      EXPECT_EQ(sum_of_terms(parts), expected) << plan.technique() << " on " << plan.ranks;
    }
  }
}

// No part takes back what another one has stated: what a tier holds is stated by its part alone.
TEST(Terms, EveryStateIsStatedByOnePart) {
  std::set<PlanPart> seen;
  for (const Plan& plan : plans()) {
    std::map<MemoryUse, std::set<PlanPart>> parts_of_use;
    for (const Terms& terms : terms_of(plan, 0)) {
      seen.insert(terms.part);
      for (const Terms::Held& held : terms.memory) {
        EXPECT_GE(held.bytes, 0);
        parts_of_use[held.use].insert(terms.part);
      }
    }
    const bool offloads = plan.zero_stage() > 0 && plan.options.offload != "none";
    const bool offloads_all = offloads && plan.options.offload == "parameters";
    using Parts = std::set<PlanPart>;
    Parts of_optimizer{offloads ? PlanPart::offload : PlanPart::states};
    // States of whole matrices are their owners'.
    if (plan.options.optimizer == "galore") of_optimizer.insert(PlanPart::matrices);
    // Biases of routers are stated by a part of their own, where the rank has layers with experts.
    if (plan.model.experts.bias_rate > 0)
      parts_of_use[MemoryUse::optimizer].erase(PlanPart::router_balance);
    EXPECT_EQ(parts_of_use[MemoryUse::optimizer], of_optimizer);
    EXPECT_EQ(parts_of_use[MemoryUse::parameters],
              Parts{offloads_all ? PlanPart::offload : PlanPart::states});
    EXPECT_EQ(parts_of_use[MemoryUse::gradients], Parts{PlanPart::states});
  }
  EXPECT_EQ(seen.size(), 15U);
}

TEST(Terms, OfTwoPartsAreBothInTheSum) {
  Terms offload{.part = PlanPart::offload, .messages_formula = "2"};
  offload.send("x", {.sent_messages = 1, .sent_elements = 10}, 4, "second");
  offload.hold({.use = MemoryUse::activations, .bytes = 7, .formula = "b"});
  offload.offload = TierTraffic{.read_bytes = 1, .written_bytes = 2};
  Terms layers{.part = PlanPart::layers, .messages_formula = "1"};
  layers.send("x", {.sent_messages = 2, .sent_elements = 100}, 4, "first");
  layers.send("unused", {}, 4, "its formula");
  layers.hold({.use = MemoryUse::activations, .bytes = 3, .formula = "a", .exact = false});
  layers.offload = TierTraffic{.read_bytes = 10, .written_bytes = 20};

  const Prediction sum = sum_of_terms({offload, layers});
  EXPECT_EQ(sum.traffic.at("x"), (Volume{.sent_bytes = 440, .sent_messages = 3}));
  EXPECT_EQ(sum.traffic.size(), 1U);
  EXPECT_EQ(sum.total, sum.traffic.at("x"));
  EXPECT_EQ(sum.formulas.at("x"), "first + second");
  EXPECT_EQ(sum.formulas.at("unused"), "its formula");
  EXPECT_EQ(sum.messages_formula, "1 + 2");
  EXPECT_EQ(peak(sum, MemoryUse::activations), (Figure{10, "a + b", false}));
  EXPECT_EQ(sum.offload, (TierTraffic{.read_bytes = 11, .written_bytes = 22}));
  EXPECT_FALSE(peak(sum, MemoryUse::workspace));
}

TEST(Terms, APeakContainsItsLargestMoment) {
  const auto held = [](Count bytes, Moment moment) {
    Terms terms{.part = PlanPart::norm};
    terms.hold({.use = MemoryUse::communication, .bytes = bytes, .moment = moment});
    return terms;
  };
  const auto peak_of_all = [](const std::vector<Terms>& parts) {
    return *peak(sum_of_terms(parts), MemoryUse::communication);
  };
  std::vector<Terms> parts = {held(100, Moment::always), held(3, Moment::norm_of_model),
                              held(5, Moment::reduction), held(4, Moment::norm_of_shards)};
  EXPECT_EQ(peak_of_all(parts), (Figure{.value = 105}));
  // Bytes of one moment are held together.
  parts.push_back(held(3, Moment::norm_of_model));
  EXPECT_EQ(peak_of_all(parts), (Figure{.value = 106}));
  // No step may follow a validation: a bound.
  parts.push_back(held(20, Moment::after_validation));
  EXPECT_EQ(peak_of_all(parts), (Figure{.value = 126, .exact = false}));
  EXPECT_EQ(peak_of_all({parts.front(), parts.back()}), (Figure{.value = 120}));
}

TEST(Terms, WithoutAPartsTrafficTheTotalIsUnknown) {
  Terms known{.part = PlanPart::layers};
  known.send("x", {.sent_elements = 1}, 4);
  const Terms unknown{.part = PlanPart::gradients, .has_unknown_traffic = true};
  for (const auto& parts : {std::vector{known, unknown}, std::vector{unknown, known}}) {
    const Prediction sum = sum_of_terms(parts);
    EXPECT_FALSE(sum.total);
    EXPECT_EQ(sum.traffic.at("x").sent_bytes, 4);
  }
}

}  // namespace
}  // namespace lockstep
