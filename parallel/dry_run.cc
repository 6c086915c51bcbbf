#include "parallel/dry_run.h"

#include <algorithm>
#include <deque>

#include "models/adamw.h"
#include "models/narrow_backend.h"
#include "models/roofline_backend.h"
#include "parallel/rank_model.h"
#include "parallel/sharded/unit.h"

namespace lockstep {
namespace {

// The largest micro-batch of this rank; its tokens are all different, if the vocabulary has as many.
struct DryBatch {
  DryBatch(const Plan& plan, int rank) {
    const std::vector<Count> counts = plan.rows(rank);
    rows.length = plan.tokens_of_sequence();
    rows.sequences = *std::ranges::max_element(counts) / rows.length;
    rows.step = 0;
    tokens.resize(static_cast<std::size_t>(rows.count()));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(static_cast<Count>(i) % plan.model.vocabulary);
  }
  Rows rows;
  std::vector<std::int32_t> tokens;  // and targets
};

void pass_through(GptStage& stage, const Plan& plan, const DryBatch& batch, Ledger& ledger) {
  const auto message = [&] {
    return Tensor({stage.outer_rows(batch.rows.count()), plan.model.width}, plan.options.dtype,
                  ledger, MemoryUse::communication);
  };
  const Tensor input = message(), output = message(), gradient = message();
  StageStash stash;
  stage.forward(stash, batch.rows, batch.tokens, input.slice(), output.slice());
  if (stage.is_last()) stage.loss(stash, batch.tokens, 1);
  if (!plan.schedule.has(Pass::input_gradient))
    return stage.backward(stash, batch.tokens, output.slice(), gradient.slice(), {});
  stage.backward_input(stash, output.slice(), gradient.slice());
  stage.backward_weight(stash, batch.tokens);
}

// The norm of the gradients and the optimizer's step, of this rank's shards or of everything.
void update(RankModel& model, const Plan& plan, int rank, Backend& backend, Ledger& ledger) {
  const AdamWOptions options = adamw_options(plan.options);
  if (const auto sharding = sharding_of(plan)) {
    const RankUnits layout = sharded_units(model);
    const int shards = plan.shards(), shard = plan.shard(rank);
    std::deque<ShardedUnit> units;
    for (const UnitParameters& unit : layout.all)
      units
          .emplace_back(model.parameters, unit, Parts(unit.count, shards), shard, *sharding,
                        options, backend, ledger)
          .optimizer()
          .step(0, 1);
    for (const OwnPart& part :
         own_parts(model.parameters, layout, shards, shard, model.parameters.counted()))
      backend.squared_norm(
          units[part.unit].own_gradients().part(part.range.first, part.range.count));
    return;
  }
  for (const Range& range : model.parameters.counted())
    backend.squared_norm(model.parameters.gradients().part(range.first, range.count));
  AdamW(model.parameters, options, backend, ledger).step(0, 1);
}

}  // namespace

Count narrow_workspace_bytes(const Plan& plan, int rank) {
  if (!is_narrow(plan.options.dtype)) return 0;
  Ledger ledger;
  ledger.place_on(none_device());
  RooflineBackend nothing({}, [](double) {});
  NarrowBackend backend(nothing, ledger);
  TensorRanks tensor(plan.split(rank), plan.options.tensor_overlap, ledger);
  RankModel model(plan, rank, tensor, backend, ledger);
  model.parameters.allocate();
  const DryBatch batch(plan, rank);
  for (auto& [number, stage] : model.stages) pass_through(stage, plan, batch, ledger);
  update(model, plan, rank, backend, ledger);
  return ledger.peak_bytes(MemoryUse::workspace);
}

}  // namespace lockstep
