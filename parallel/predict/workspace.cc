#include "parallel/predict/workspace.h"

#include <deque>

#include "parallel/data/in_backward.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/unit.h"

namespace lockstep {
namespace {

void pass_through(GptStage& stage, const Plan& plan, const Batch& batch, Ledger& ledger) {
  const Rows rows = rows_in_training(batch);
  const auto message = [&] {
    return Tensor({stage.outer_rows(rows.count()), plan.model.width}, plan.options.dtype, ledger,
                  MemoryUse::communication);
  };
  const Tensor input = message(), output = message(), gradient = message();
  StageStash stash;
  stage.forward(stash, rows, batch.inputs, input.slice(), output.slice(), Targets{batch.targets});
  if (!plan.schedule.has(Pass::input_gradient))
    return stage.backward(stash, batch.inputs, output.slice(), gradient.slice());
  stage.backward_input(stash, output.slice(), gradient.slice());
  stage.backward_weight(stash, batch.inputs);
}

// A part of a matrix takes a step without being changed as a whole.
void step_matrix(Optimizer& optimizer, std::size_t number, Ledger& ledger) {
  const Tensor direction({optimizer.own_elements(number)}, DType::f32, ledger,
                         MemoryUse::optimizer);
  optimizer.begin_matrix(number, 1, direction.slice());
  optimizer.end_matrix(number, 0, direction.slice());
}

// Takes the gradient norm and the optimizer's step, for this rank's shards or for everything. Whole
// matrices have no 16-bit operands but their gradients.
void update(RankModel& model, ParameterSet set, const Plan& plan, Backend& backend,
            Ledger& ledger) {
  const OptimizerSettings settings = optimizer_settings(plan.options);
  Parameters& parameters = model.of(set);
  std::deque<ShardedUnit> units;
  std::deque<Tensor> reductions;
  std::vector<Optimizer*> optimizers;
  std::unique_ptr<Optimizer> of_all;
  if (const auto sharding = sharding_of(plan, set)) {
    const RankUnits layout = sharded_units(model, *sharding, set);
    const int shards = layout.replicas.shards(), shard = layout.replicas.shard();
    for (const UnitParameters& parameters_of_unit : layout.all) {
      ShardedUnit& unit = units.emplace_back(parameters, parameters_of_unit, shards, shard,
                                             *sharding, settings, backend, ledger);
      optimizers.push_back(&unit.optimizer());
      if (!sharding->steps_in_backward) continue;
      // Each unit then steps with the buffer that its gradients were reduced in.
      const Slice reduced = reductions
                                .emplace_back(std::vector{unit.exchanged()}, parameters.dtype(),
                                              ledger, MemoryUse::gradients)
                                .slice();
      unit.add_reduced(unit.own_chunk(reduced));
    }
    for (const OwnPart& part : own_parts(parameters, layout, shards, shard, parameters.counted()))
      backend.squared_norm(
          units[part.unit].own_gradients().part(part.range.first, part.range.count));
  } else {
    std::vector<Range> at_once = {{0, parameters.count()}};
    if (plan.options.optimizer_in_backward) {
      at_once.clear();
      for (const Bucket& unit : unit_buckets(model, set))
        at_once.push_back({unit.offset, unit.count});
    }
    for (const Range& range : common(parameters.counted(), at_once))
      backend.squared_norm(parameters.gradients().part(range.first, range.count));
    of_all = new_optimizer(settings, parameters, backend, ledger);
    optimizers.push_back(of_all.get());
  }
  for (Optimizer* const optimizer : optimizers) {
    for (std::size_t i = 0; i < optimizer->list().size(); ++i)
      if (optimizer->needs_whole(optimizer->list()[i])) step_matrix(*optimizer, i, ledger);
    optimizer->step(0, 1);
  }
}

}  // namespace

// All tokens differ, if the vocabulary is large enough.
Batch dry_batch(const Plan& plan, int rank, const Share& rows, int step) {
  Batch batch{.inputs = {},
              .targets = {},
              .sequences = rows.count,
              .length = plan.tokens_of_sequence() / plan.length(Axis::cp),
              .layout = plan.layout(rank),
              .first = rows.first,
              .global_batch = plan.options.global_batch,
              .step = step};
  batch.inputs.resize(static_cast<std::size_t>(rows_of(batch).count()));
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    batch.inputs[i] = static_cast<std::int32_t>(static_cast<Count>(i) % plan.model.vocabulary);
  batch.targets = batch.inputs;
  return batch;
}

Count narrow_workspace_bytes(const Plan& plan, int rank, bool multiplies_bf16) {
  if (!is_narrow(plan.options.dtype)) return 0;
  Ledger ledger;
  ledger.place_on(none_device());
  DryBackend backend(ledger, multiplies_bf16);
  RankModel model(plan, rank, backend, ledger);
  for (const ParameterSet set : model.sets()) model.of(set).allocate();
  // A replica's first micro-batch is its largest.
  const Batch batch =
      dry_batch(plan, rank, plan.share(rank).part(0, plan.options.micro_batches), 0);
  for (auto& [number, stage] : model.stages) pass_through(stage, plan, batch, ledger);
  for (const ParameterSet set : model.sets())
    if (is_trained(set)) update(model, set, plan, backend, ledger);
  return ledger.peak_bytes(MemoryUse::workspace);
}

Terms workspace_terms(const Plan& plan, int rank, const Environment& environment) {
  Terms terms{.part = PlanPart::workspace};
  if (!environment.computes_on_host) return terms;
  const bool narrow = is_narrow(plan.options.dtype);
  // If each rank has some rows of a sequence, its part of the embedding's gradient can have more
  // distinct tokens than its other tensors have rows.
  const bool has_embedding = plan.schedule.rank_of_stage().front() == plan.place(rank, Axis::pp);
  // Experts have as many rows as tokens choose them.
  const bool depends_on_tokens = plan.split(rank).by_sequence && has_embedding;
  terms.hold({.use = MemoryUse::workspace,
              .bytes = narrow_workspace_bytes(plan, rank, environment.multiplies_bf16),
              .formula = narrow ? "largest operands * 4" : "0",
              .exact = !narrow || (plan.has_even_batches() && !depends_on_tokens &&
                                   !plan.model.experts.exist())});
  return terms;
}

std::vector<Batch> dry_batches(const Plan& plan, int rank, int step) {
  std::vector<Batch> batches;
  for (int m = 0; m < plan.options.micro_batches; ++m)
    batches.push_back(
        dry_batch(plan, rank, plan.share(rank).part(m, plan.options.micro_batches), step));
  return batches;
}

}  // namespace lockstep
