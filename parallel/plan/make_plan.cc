#include "parallel/plan/make_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "collectives/base/error.h"
#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/sharding.h"
#include "parallel/pipeline/schedules/text.h"
#include "parallel/plan/algorithms.h"
#include "parallel/plan/loss_scale.h"
#include "parallel/plan/roles.h"
#include "parallel/tensor/layers.h"

namespace lockstep {
namespace {

using enum Axis;

// Joins a text for each axis but `without`.
template <typename Text>
std::string product(std::string_view between, std::optional<Axis> without, Text text) {
  std::vector<std::string> factors;
  for (const Axis axis : axes())
    if (axis != without) factors.push_back(text(axis));
  return fmt::format("{}", fmt::join(factors, between));
}

// Suggests numbers of ranks if the product of the lengths does not divide the given one.
std::string nearest_ranks(int ranks, int model) {
  const int below = ranks / model * model;
  return below > 0 ? fmt::format("use --ranks {} or {}", below, below + model)
                   : fmt::format("use --ranks {}", model);
}

// The mesh of the ranks that compute.
Mesh mesh_of(const TrainOptions& o, int ranks, std::optional<Axis> free_axis) {
  AlongAxes lengths(1);
  for (const Axis axis : axes()) lengths[axis] = o.mesh_lengths[axis].value_or(1);
  const int fixed = Mesh(lengths, o.mesh_order).size();
  if (free_axis && !o.mesh_lengths[*free_axis]) {
    require(ranks % fixed == 0 && ranks >= fixed,
            fmt::format("{} ranks cannot be divided into models of {} ranks", ranks,
                        product(" x ", free_axis,
                                [&](Axis axis) { return fmt::format("{}", lengths[axis]); })),
            fmt::format("{} must divide --ranks: {}",
                        product(" times ", free_axis,
                                [](Axis axis) { return fmt::format("--{}", name_of(axis)); }),
                        nearest_ranks(ranks, fixed)));
    lengths[*free_axis] = ranks / fixed;
  }
  Mesh mesh(lengths, o.mesh_order);
  require(mesh.size() == ranks || free_axis != tp,
          fmt::format("--tp {} with {} ranks", lengths[tp], ranks),
          fmt::format("all ranks are tensor-parallel here: use --ranks {}, or train 3d, which also "
                      "has other axes",
                      lengths[tp]));
  require(mesh.size() == ranks,
          fmt::format("{} is {}, and there are {} ranks",
                      product(" times ", {},
                              [&](Axis axis) {
                                return fmt::format("--{} {}", name_of(axis), lengths[axis]);
                              }),
                      mesh.size(), ranks),
          fmt::format("they must be equal: use --ranks {}", mesh.size()));
  return mesh;
}

Schedule schedule_of(const TrainOptions& o, const PipelineShape& shape) {
  if (o.schedule_file.empty()) return make_schedule(find_schedule(o.schedule), shape);
  return read_schedule(o.schedule_file);
}

void check_schedule(const Plan& plan) {
  const TrainOptions& o = plan.options;
  const Schedule& schedule = plan.schedule;
  check(schedule);
  require(schedule.ranks() == plan.length(pp),
          fmt::format("{} is a schedule for {} ranks, and there are {}", o.schedule_file,
                      schedule.ranks(), plan.length(pp)),
          "use as many --ranks as it has lines");
  require(schedule.micro_batches == o.micro_batches,
          fmt::format("{} is a schedule of {} micro-batches, and --micro-batches is {}",
                      o.schedule_file, schedule.micro_batches, o.micro_batches),
          "use as many");
  require(
      schedule.stages <= plan.model.layers,
      fmt::format("{} pipeline stages are more than the model's {} layers", schedule.stages,
                  plan.model.layers),
      fmt::format("every stage has at least one layer: at most {} ranks with {} stages each, or "
                  "fewer --virtual-stages",
                  plan.model.layers / (schedule.stages / plan.length(pp)),
                  schedule.stages / plan.length(pp)));
}

// Adds the actions by which replicas gather parameters and reduce gradients, unless a file has
// them.
void add_collectives(Plan& plan) {
  const bool shards_parameters = plan.zero_stage() == 3;
  if (plan.schedule.has(Pass::reduce_gradients)) {
    require(!shards_parameters || plan.schedule.has(Pass::unshard),
            fmt::format("{} has REDUCE_GRAD but no UNSHARD, and --zero 3 needs both",
                        plan.options.schedule_file),
            "add UNSHARD and RESHARD to it, or remove REDUCE_GRAD: then all three are added");
    return;
  }
  if (shards_parameters)
    plan.schedule = with_sharding(plan.schedule);
  else if ((plan.copies() > 1 && !plan.options.local_steps) || plan.zero_stage() > 0)
    plan.schedule = with_gradient_reduction(plan.schedule);
}

void check_batch(const Plan& plan) {
  const TrainOptions& o = plan.options;
  const int replicas = plan.sequence_groups(), least = replicas * o.micro_batches;
  require(
      o.global_batch >= least,
      fmt::format(
          "a global batch of {} sequences is too small for {} replicas with {} micro-batches each",
          o.global_batch, replicas, o.micro_batches),
      fmt::format("use at least as many sequences as micro-batches of all ranks: "
                  "--global-batch {}",
                  least));
}

void check_run(const TrainOptions& o, int ranks) {
  for (const auto& [rank, factor] : o.slow_ranks) {
    require(rank >= 0 && rank < ranks, fmt::format("--slow-rank {} of {} ranks", rank, ranks),
            fmt::format("ranks are 0 to {}", ranks - 1));
    require(factor >= 1 && std::isfinite(factor), fmt::format("--slow-rank {}: {}", rank, factor),
            "use a finite number of at least 1");
  }
  require(is_trainable(o.dtype), fmt::format("--dtype {}", name_of(o.dtype)),
          "choose f32, f64, bf16 or f16");
  loss_scaling_from_name(loss_scaling(o));
  model_options(o);
}

// Divides the ranks along cp into groups.
void divide_context(TrainOptions& o, int ranks) {
  o.mesh_lengths[Axis::cp] = ranks;
  if (ranks == 1) return;
  const int inside = o.ulysses_ranks.value_or(1);
  require(inside <= ranks && ranks % inside == 0,
          fmt::format("--ulysses {} of {} ranks along cp", inside, ranks),
          "use a number that divides the ranks");
  o.ulysses_ranks = inside;
  const int groups = o.ring_ranks.value_or(ranks / inside);
  require(inside * groups == ranks,
          fmt::format("--ulysses {} times --ring {} is {}, and there are {} ranks along cp", inside,
                      groups, inside * groups, ranks),
          fmt::format("they must be equal: use --ring {}, or --ranks {}", ranks / inside,
                      inside * groups));
}

void check_context(const Plan& plan) {
  const TrainOptions& o = plan.options;
  if (plan.length(cp) == 1) return;
  if (plan.layout(0).balanced) {
    require(o.documents, "--layout balanced without --documents",
            "it orders the documents of a sequence: add --documents, or use --layout striped");
    require(o.dropout == 0, fmt::format("--layout balanced with --dropout {}", *o.dropout),
            "attention's dropout would depend on the order of the documents: use --dropout 0 or "
            "another --layout");
  }
  const ContextSplit context = plan.context(0);
  context.layout.positions(plan.tokens_of_sequence());
  const LayerSplit split = plan.split(0);
  context.heads().share(split.heads(plan.model.heads),
                        split.kv_heads(plan.model.key_value_heads()));
}

// Returns the dropout rate in training: one rate for all places.
double dropout_of(const GptConfig& model) {
  const auto [residual, embedding, attention] = model.dropout;
  require(residual == embedding && embedding == attention,
          fmt::format("the model has resid_pdrop {}, embd_pdrop {} and attn_pdrop {}", residual,
                      embedding, attention),
          "there is one rate for all places: choose it with --dropout");
  return residual;
}

// A folder of weights says which model it holds.
void check_model_of_init(const TrainOptions& options, const GptConfig& model) {
  std::error_code none;
  if (!std::filesystem::is_directory(options.init, none)) return;
  require(is_same_model(gpt_config(options.init), model),
          fmt::format("--model {} is another model than that of --init {}", options.model,
                      options.init),
          "omit --model: the folder's config.json says which model it is");
}

// Fills in defaults that depend on other options.
void fill_in(Plan& plan) {
  TrainOptions& o = plan.options;
  if (o.sequence_length == 0) o.sequence_length = plan.model.context;
  if (o.minimum_learning_rate < 0) o.minimum_learning_rate = o.learning_rate;
  const LossScaler scaler = loss_scaler(o);
  o.loss_scaling = loss_scaling(o);
  o.initial_loss_scale = scaler.scale();
  o.loss_scale_window = scaler.window();
  if (!o.reduce_dtype) o.reduce_dtype = o.dtype;
  if (!o.dropout) o.dropout = dropout_of(plan.model);
  if (plan.has_servers()) return;
  for (const Axis axis : axes()) o.mesh_lengths[axis] = plan.length(axis);
  o.zero_stage = plan.zero_stage();
  o.virtual_stages = plan.schedule.stages / plan.length(pp);
}

}  // namespace

Plan plan_of(const TrainOptions& options, int ranks) {
  const GptConfig model = gpt_config(options.model);
  check_model_of_init(options, model);
  return plan_of(options, ranks, model);
}

Plan plan_of(const TrainOptions& options, int ranks, const GptConfig& model) {
  require(ranks >= 1, fmt::format("--ranks {}", ranks), "use 1 or more");
  check_bounds(options);
  check_run(options, ranks);
  const TechniqueEntry& entry = technique(options.technique);
  require(entry.free_axis || ranks == 1,
          fmt::format("{} training on {} ranks", options.technique, ranks),
          "use --ranks 1, or train ddp");
  if (entry.has_servers) check_servers(options, ranks);
  const int computing = entry.has_servers ? roles_of(options, ranks).workers() : ranks;
  Plan plan{.options = options,
            .ranks = ranks,
            .model = model,
            .mesh = mesh_of(options, computing, entry.free_axis),
            .schedule = {}};
  plan.model.experts = with_options(model.experts, options);
  complete_lora(plan);
  if (entry.set_implied) entry.set_implied(plan.options, plan.length(cp));
  divide_context(plan.options, plan.length(cp));
  // A single stage needs no schedule: each micro-batch goes forward and then back.
  if (!plan.has_pipeline()) {
    plan.options.schedule = "1f1b";
    plan.options.schedule_file.clear();
    plan.options.virtual_stages = plan.options.group_size = 0;
  }
  complete_experts(plan, entry.divides_experts);
  check_batch(plan);
  plan.schedule = schedule_of(plan.options, plan.shape());
  check_schedule(plan);
  check_balance_level(plan);
  add_collectives(plan);
  require(options.sequence_length <= plan.model.context,
          fmt::format("--sequence-length {} with a context of {}", options.sequence_length,
                      plan.model.context),
          "use no more tokens than the model's context");
  check_local_steps(plan);
  complete_exchange(plan);
  fill_in(plan);
  check_context(plan);
  check_split(plan.model, plan.tokens_of_sequence() / plan.length(cp), plan.split(0));
  check_data(plan);
  check_optimizer(plan);
  check_experts(plan);
  return plan;
}

}  // namespace lockstep
