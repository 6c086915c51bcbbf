#include "parallel/train/local_gradients.h"

#include "parallel/pipeline/execution/executor.h"
#include "parallel/pipeline/execution/kept_inputs.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/rank_model.h"
#include "parallel/rank/training.h"
#include "parallel/tags/with_tags.h"

namespace lockstep {
namespace {

std::vector<double> gradients_of_rank(RankContext& context, const Plan& plan) {
  using enum Axis;
  const auto pipeline = plan.mesh.communicator(context.world, {pp});
  Training training(context, plan, backend_with_tags(context, plan));
  RankModel model(plan, context.world, training.backend(), context.ledger);
  KeptInputs inputs(context, plan, *model.ranks.tensor_group, model.ranks.tensor);
  for (const ParameterSet set : model.sets()) {
    model.of(set).allocate();
    FirstWeights(plan).set(model.of(set));
  }
  ScheduleObserver nothing;
  Executor executor(context, *pipeline, plan, model.stages, inputs, nothing, [] { return 0.0; });
  const std::vector<Batch> batches = training.micro_batches(0);
  executor.run(batches, plan.tokens_per_step(), 1);
  const auto gradients = host_span<const double>(model.parameters.gradients());
  return {gradients.begin(), gradients.end()};
}

}  // namespace

std::vector<std::vector<double>> local_gradients(const Plan& plan) {
  std::vector<std::vector<double>> gradients(static_cast<std::size_t>(plan.ranks));
  launch({.ranks = plan.ranks, .fault = {}}, [&](RankContext& context) {
    gradients[static_cast<std::size_t>(context.world.rank())] = gradients_of_rank(context, plan);
  });
  return gradients;
}

}  // namespace lockstep
