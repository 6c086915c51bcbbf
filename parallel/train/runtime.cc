#include "parallel/train/runtime.h"

#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/stopwatch.h"
#include "parallel/pipeline/execution/bubble.h"
#include "parallel/pipeline/execution/executor.h"
#include "parallel/pipeline/execution/kept_inputs.h"
#include "parallel/pipeline/execution/tied_embedding.h"
#include "parallel/plan/environment.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/rank/strategy.h"
#include "parallel/tensor/shared_gradients.h"

namespace lockstep {
namespace {

using enum Axis;

class Runtime final : public TrainingRank, public ScheduleObserver {
 public:
  Runtime(RankContext& context, const Plan& plan, Backend& backend)
      : context_(context),
        plan_(plan),
        rank_(context.world.rank()),
        pipeline_(plan.mesh.communicator(context.world, {pp})),
        replicas_(plan.mesh.communicator(context.world, replica_axes())),
        model_ranks_(plan.mesh.communicator(context.world, model_axes())),
        model_(plan, context.world, backend, context.ledger),
        split_(model_.ranks.tensor),
        tokens_(model_.ranks.context),
        inputs_(context, plan, *model_.ranks.tensor_group, split_),
        tied_(*pipeline_, model_.parameters, model_.embedding_copies(), plan.ends_of_pipeline()),
        exposed_(context.world) {
    backend.observe(model_.parameters);
    data_ = make_data_parallel(context, *replicas_, plan, model_, backend);
    shared_.emplace(
        *model_.ranks.tensor_group, model_.parameters,
        [this](const auto& ranges) { return data_->own_gradients(ranges); }, context.ledger);
    if (plan.stage_options().kept_input != KeptInput::whole && !plan.recomputes_stages())
      for (auto& [number, stage] : model_.stages) stage.keep_inputs_in(inputs_);
    executor_.emplace(context, *pipeline_, plan, model_.stages, inputs_, *this, [this] {
      return split_.waiting_seconds() + tokens_.waiting_seconds() + data_->waiting_seconds();
    });
  }

  void load_weights() override {
    const FirstWeights weights(plan_);
    data_->load([&] { weights.set(model_.parameters); });
  }
  void gather(Gathered what, const PartSink& sink) override;

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    data_->begin();
    // Aligned, so that virtual time shows the bubble of this step only.
    if (plan_.has_pipeline()) context_.world.transport().align();
    const double loss = executor_->run(micro_batches, total_targets, loss_scale);
    communicate([&] { tied_.add_gradients(); });
    tied_.for_each_copy([this](int parameter) { data_->gradient_ready(parameter); });
    data_->finish();
    communicate([&] { shared_->reduce(); });
    return own_part(loss);
  }

  RoutingTotals take_routing() override {
    RoutingTotals all;
    for (auto& [number, stage] : model_.stages) all.add(stage.take_routing());
    return all;
  }
  double gradient_norm() override {
    double square = data_->squared_norm();
    communicate([&] { sum_of_norm(*model_ranks_, square); });
    return std::sqrt(square);
  }
  void update(double learning_rate, double gradient_scale) override {
    data_->step(learning_rate, gradient_scale);
  }
  void wait_for_parameters() override { data_->wait_for_parameters(); }
  double loss_sum(const Batch& batch) override { return own_part(executor_->loss_sum(batch)); }

  TrainingState state() override { return data_->state(); }
  void take_restored() override { data_->take_restored(); }

  PipelineRecord finish() override;
  std::vector<double> last_passes() const override { return executor_->runs().back().passes; }
  ExposedSeconds exposed() const override {
    return {.layers = split_.waiting_seconds(),
            .sequence = tokens_.waiting_seconds(),
            .replicas = data_->waiting_seconds(),
            .pipeline = executor_->waiting_seconds(),
            .model = exposed_.seconds()};
  }
  double communication_seconds() const override {
    return exposed_seconds() - data_->waiting_seconds() + data_->communication_seconds() -
           tokens_.waiting_seconds() + tokens_.communication_seconds();
  }
  TierTraffic tier_traffic() const override { return data_->tier_traffic() + inputs_.traffic(); }
  std::int64_t attention_pairs() const override { return tokens_.pairs(); }
  Prediction prediction() const override {
    Environment environment{.computes_on_host = computes_on_host(context_.ledger),
                            .multiplies_bf16 = multiplies_bf16(context_.ledger)};
    data_->describe(environment);
    return predict(plan_, rank_, environment);
  }

 private:
  // The data-parallel strategy sees all that the executor does, but the gradients of tied copies only
  // as their sum.
  void before_use(const Unit& unit, UnitUse use) override { data_->before_use(unit, use); }
  void after_use(const Unit& unit, UnitUse use) override { data_->after_use(unit, use); }
  void gradient_ready(int parameter) override {
    if (!tied_.completes(parameter)) data_->gradient_ready(parameter);
  }
  void take(const Action& collective) override { data_->take(collective); }

  // All tensor-parallel ranks of the last stage have its loss; only the first one reports it.
  double own_part(double loss) const { return plan_.place(rank_, tp) == 0 ? loss : 0; }

  // Runs work that waits for the other ranks of this replica.
  template <typename Work>
  void communicate(Work work) {
    if (model_ranks_->size() == 1) return work();
    const Trace::Span span(context_.trace, 0, "wait for the other ranks of the model", "wait");
    exposed_.time(work);
  }

  RankContext& context_;
  const Plan& plan_;
  int rank_;
  std::unique_ptr<Communicator> pipeline_, replicas_, model_ranks_;
  RankModel model_;
  TensorRanks& split_;
  ContextRanks& tokens_;
  KeptInputs inputs_;
  TiedEmbedding tied_;
  std::unique_ptr<DataParallel> data_;
  std::optional<SharedGradients> shared_;
  std::optional<Executor> executor_;
  Stopwatch exposed_;  // in addition to the executor's, the split layers' and the replicas'
};

// The ranks of the first replica send their values to rank 0, in order.
void Runtime::gather(Gathered what, const PartSink& sink) {
  Communicator& world = context_.world;
  world.set_label("weights");
  const Slice own = data_->flat(what);
  for (int rank = 0; rank < plan_.computing_ranks(); ++rank) {
    if (plan_.copy(rank) != 0) continue;
    if (rank == 0 && rank_ == 0) give(model_.parameters, own, sink);
    if (rank == 0) continue;
    if (rank_ == rank) world.send(own, 0);
    if (rank_ != 0) continue;
    const RankOutline other(plan_, rank);
    const Tensor theirs({other.parameters().count()}, own.dtype, context_.ledger,
                        MemoryUse::workspace);
    world.recv(theirs.slice(), rank);
    give(other.parameters(), theirs.slice(), sink);
  }
}

PipelineRecord Runtime::finish() {
  PipelineRecord record{.in_flight = executor_->most_in_flight(), .bubble = {}};
  // Without data, passes take no time.
  if (!plan_.has_pipeline() || !has_data(context_.ledger)) return record;
  pipeline_->set_label("report");
  const Count rows = plan_.split(rank_).outer_rows(plan_.rows(rank_).front());
  record.bubble =
      measured_bubble(*pipeline_, plan_.schedule, *executor_, plan_.schedule_name(), plan_.shape(),
                      rows * plan_.model.width * element_bytes(plan_.options.dtype));
  return record;
}

}  // namespace

std::unique_ptr<TrainingRank> make_runtime(RankContext& context, const Plan& plan,
                                           Backend& backend) {
  return std::make_unique<Runtime>(context, plan, backend);
}

}  // namespace lockstep
