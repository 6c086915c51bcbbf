// Draws the cases.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/optimizers/galore.h"
#include "parallel/fuzz/draw.h"

namespace lockstep {
namespace {

GptConfig draw_model(Random& random) {
  GptConfig model;
  model.layers = one_of(random, {1, 2, 3, 4, 5, 8});
  model.heads = one_of(random, {1, 2, 3, 4, 4, 6, 8});
  model.width = model.heads * one_of(random, {2, 4, 8});
  do model.kv_heads = static_cast<int>(random() % static_cast<unsigned>(model.heads + 1));
  while (model.kv_heads > 0 && model.heads % model.kv_heads != 0);
  model.context = one_of(random, {6, 7, 8, 12, 16, 24});
  model.vocabulary = one_of(random, {123, 125, 128, 144});  // the text has letters up to z, 122
  return model;
}

// The mesh has all axes; other techniques choose them in their own ways.
const TechniqueEntry& draw_technique(Random& random) {
  std::vector<const TechniqueEntry*> choices;
  for (const TechniqueEntry& entry : techniques())
    if (entry.preset_of.empty() && !entry.is_reference)
      choices.insert(choices.end(), entry.has_mesh ? 6 : 1, &entry);
  return *choices[random() % choices.size()];
}

FuzzPlan draw_plan(Random& random) {
  FuzzPlan plan;
  TrainOptions& o = plan.options;
  const TechniqueEntry& entry = draw_technique(random);
  const std::string_view name = entry.name;
  o.technique = name;
  for (const OptionGroup& group : describe(o))
    if (group.belongs_to(name) && !group.is_drawn_last) draw_options(random, group);
  plan.ranks = 1 + static_cast<int>(random() % 8);
  if (entry.has_mesh) {
    plan.ranks = o.mesh_ranks(axes());
    // Few models have so many heads for each rank along tp.
    if (o.mesh_lengths[Axis::cp] == 4 && o.mesh_lengths[Axis::tp] == 1 && random() % 2 == 0)
      o.ulysses_ranks = 4;
    if (random() % 2 == 0) o.ring_ranks = std::max(1, *o.mesh_lengths[Axis::cp] / *o.ulysses_ranks);
  }
  if (o.colocated) o.servers = 1;
  return plan;
}

void draw_experts(Random& random, GptConfig& model) {
  using enum RouterWeights;
  model.experts = {.number = one_of(random, {2, 4, 4, 6, 8}),
                   .per_token = 1 + static_cast<int>(random() % 3),
                   .every = one_of(random, {1, 1, 2}),
                   .width = one_of(random, {6, 8, 16}),
                   .shared = one_of(random, {0, 0, 1, 2}),
                   .router = one_of(random, {softmax, softmax_unnormalized, sigmoid}),
                   .balance = one_of(random, {0.0, 0.1})};
}

// How a model with so many experts is trained, and divided in this plan.
void draw_division(Random& random, FuzzPlan& plan, const ExpertConfig& experts) {
  TrainOptions& o = plan.options;
  // Rounding decides between scores that are nearly equal: f64 has the fewest.
  o.dtype = DType::f64;
  o.loss_scaling.clear();
  o.reduce_dtype.reset();
  o.router_z_loss = one_of(random, {0.0, 0.0, 0.01});
  o.router_bias_rate = one_of(random, {0.0, 0.0, 0.1});
  if (!technique(o.technique).has_mesh) return;
  if (o.mesh_lengths[Axis::tp].value_or(1) > 1 && random() % 3 == 0) o.expert_tensor_ranks = 1;
  std::vector<int> divide_both;
  for (int ranks = 1; ranks <= experts.number; ++ranks)
    if (std::gcd(experts.number, o.mesh_ranks(replica_axes())) % ranks == 0)
      divide_both.push_back(ranks);
  o.expert_ranks =
      random() % 2 == 0 ? divide_both.back() : divide_both[random() % divide_both.size()];
  if (*o.expert_ranks == 1) return;
  o.router_weights = one_of<const char*>(random, {"source", "expert"});
  o.shared_expert_overlap = experts.shared > 0 && random() % 2 == 0;
  // Not padded: it needs a capacity, and what that drops depends on the plan.
  o.token_dispatcher =
      o.router_weights == "source"
          ? one_of<const char*>(random, {"all_to_all", "two_level"})
          : one_of<const char*>(random, {"all_to_all", "two_level", "deduplicated", "all_gather"});
}

int pipeline_ranks(const FuzzPlan& plan) {
  return technique(plan.options.technique).free_axis == Axis::pp
             ? plan.ranks
             : plan.options.mesh_lengths[Axis::pp].value_or(1);
}

// Every third pipeline has a schedule of its own.
void draw_schedule_of(Random& random, FuzzPlan& plan, const GptConfig& model) {
  const int ranks = pipeline_ranks(plan);
  if (ranks == 1 || ranks > model.layers || random() % 3 != 0) return;
  const int most_stages = std::min(3, model.layers / ranks);
  plan.options.schedule_file = "schedule";
  plan.schedule =
      draw_schedule(random(), {.ranks = ranks,
                               .micro_batches = plan.options.micro_batches,
                               .virtual_stages = 1 + static_cast<int>(random() % most_stages),
                               .group = 0});
}

// The plans before the last one.
void draw_before(Random& random, FuzzCase& drawn, const DrawLimits& limits) {
  const FuzzPlan last = drawn.last();
  // Random streams that depend on the ranks continue only on the same ranks.
  if (drops_by_rank(last)) {
    if (last.options.steps == 1) return;
    drawn.plans.insert(drawn.plans.begin(), last);
    drawn.plans.front().options.steps = 1;
    drawn.plans.front().options.recompute =
        one_of<const char*>(random, {"none", "selective", "full"});
    if (!is_plan(drawn.plans.front(), drawn.model)) drawn.plans = {last};
    return;
  }
  const int others = std::min(last.options.steps - 1, one_of(random, {1, 1, 2, 3}));
  constexpr int most_tries = 1000;
  for (int tries = 0; static_cast<int>(drawn.plans.size()) <= others && tries < most_tries;
       ++tries) {
    FuzzPlan plan = draw_plan(random);
    if (drawn.model.experts.exist()) draw_division(random, plan, drawn.model.experts);
    take_training(plan.options, last.options);
    const int next = drawn.plans.front().options.steps;
    const int wanted = others - static_cast<int>(drawn.plans.size());  // plans before this one
    plan.options.steps = next - 1 - static_cast<int>(random() % (next - 1 - wanted));
    draw_schedule_of(random, plan, drawn.model);
    if (plan.ranks > limits.most_ranks || drops_by_rank(plan) || !is_plan(plan, drawn.model))
      continue;
    draw_buckets(random, plan, drawn.model);
    drawn.plans.insert(drawn.plans.begin(), plan);
    if (!is_stable(drawn)) drawn.plans.erase(drawn.plans.begin());
  }
}

}  // namespace

// Every second plan whose schedule has pairs overlaps them. Draws from a copy, so that what is drawn next
// does not depend on it.
void draw_pairs(Random random, FuzzPlan& plan, const GptConfig& model) {
  if (random() % 2 == 0) return;
  FuzzPlan overlapped = plan;
  overlapped.options.overlap_pairs = true;
  if (is_plan(overlapped, model)) plan = overlapped;
}

// Every third case of AdamW that may becomes one of GaLore. Draws from a copy, like draw_pairs().
void draw_galore(Random random, FuzzCase& drawn) {
  if (drawn.last().options.optimizer != OptimizerSettings{}.name || random() % 3 != 0) return;
  FuzzCase other = drawn;
  OptimizerOptions& o = other.last().options;
  o.optimizer = "galore";
  o.galore_rank = one_of(random, {1, 2, 3, 4});
  // A router's gradients of a token's experts add up to zero: one direction is that of rounding errors.
  if (other.model.experts.exist())
    o.galore_rank = std::min(o.galore_rank, other.model.experts.number - 1);
  o.galore_period = one_of(random, {1, 2, 3});
  o.galore_scale = one_of(random, {0.25, 1.0});
  const std::vector<std::string> projections = Galore::projections();
  o.galore_projection = projections[random() % projections.size()];
  for (FuzzPlan& plan : other.plans) static_cast<OptimizerOptions&>(plan.options) = o;
  if (is_stable(other) && std::ranges::all_of(other.plans, [&](const FuzzPlan& plan) {
        return is_plan(plan, other.model);
      }))
    drawn = std::move(other);
}

void chain(FuzzCase& fuzz_case) {
  for (std::size_t i = 0; i < fuzz_case.plans.size(); ++i) {
    TrainOptions& o = fuzz_case.plans[i].options;
    o.resume = i > 0 ? "checkpoint" : "";
    o.checkpoint = i + 1 < fuzz_case.plans.size() ? "checkpoint" : "";
  }
}

FuzzCase draw_case(std::uint64_t seed, std::int64_t number, const DrawLimits& limits) {
  std::seed_seq sequence{seed, static_cast<std::uint64_t>(number)};
  Random random(sequence);
  const auto allows = [&](int ranks) {
    return limits.all_ranks ? ranks == limits.most_ranks : ranks <= limits.most_ranks;
  };
  const bool has_experts = limits.experts || number % 5 == 4;
  const bool divides_experts = has_experts && random() % 3 != 0;
  for (int tries = 0; tries < limits.most_tries; ++tries) {
    FuzzCase drawn{.seed = random() % 1'000'000, .model = draw_model(random), .plans = {}};
    const int context = drawn.model.context;
    const int length = one_of(random, {0, 0, context - 1, context / 2});
    drawn.plans = {draw_plan(random)};
    if (has_experts) {
      draw_experts(random, drawn.model);
      draw_division(random, drawn.last(), drawn.model.experts);
    }
    TrainOptions& o = drawn.last().options;
    if (divides_experts && o.expert_ranks.value_or(1) == 1) continue;
    o.sequence_length = length;
    // Such plans are trained several times, and processes are started once.
    if (limits.all_ranks) o.dropout_streams = "place";
    // Micro-batches of one sequence or a few, all equal or not.
    const int groups =
        technique(o.technique).has_mesh ? o.mesh_ranks(sequence_axes()) : drawn.last().ranks;
    const int shares = groups * o.micro_batches;
    o.global_batch = shares + static_cast<int>(random() % static_cast<unsigned>(2 * shares));
    o.eps = 1e-3;  // rounding errors of tiny gradients must not become large updates
    o.steps = one_of(random, {1, 2, 2, 3, 4, most_fuzz_steps});
    // Fewer tokens could all end documents: then a step has no target.
    constexpr int least_tokens = 32;
    if (o.documents && o.global_batch * (length > 0 ? length : context) < least_tokens) continue;
    draw_schedule_of(random, drawn.last(), drawn.model);
    if (!allows(drawn.last().ranks) || o.global_batch > 64 || !is_stable(drawn) ||
        !is_plan(drawn.last(), drawn.model))
      continue;
    draw_buckets(random, drawn.last(), drawn.model);
    draw_pairs(random, drawn.last(), drawn.model);
    // Few plans have a 16-bit type, and thus a loss scale that a checkpoint keeps.
    if (random() % 3 == 0 || o.dtype == DType::f16) draw_before(random, drawn, limits);
    draw_galore(random, drawn);
    chain(drawn);
    draw_adapters(random, drawn);
    draw_exchange(random, drawn);
    draw_local_steps(random, drawn);
    draw_same_experts(random, drawn);
    draw_routing(random, drawn);
    draw_gather(random, drawn);
    draw_in_backward(random, drawn);
    return drawn;
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("--ranks {}: none of {} random plans has that many ranks",
                          limits.most_ranks, limits.most_tries),
              {.hint = "use a product of small powers of 2, such as 4, 8 or 16"});
}

}  // namespace lockstep
