#include "parallel/train/runtime.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <ranges>

#include "collectives/stopwatch.h"
#include "parallel/matrices/owners.h"
#include "parallel/pipeline/execution/bubble.h"
#include "parallel/pipeline/execution/executor.h"
#include "parallel/pipeline/execution/kept_inputs.h"
#include "parallel/pipeline/execution/tied_embedding.h"
#include "parallel/predict/parameter_terms.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/rank/router_balance.h"
#include "parallel/rank/strategy.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/train/gather_parts.h"

namespace lockstep {
namespace {

// lab: runtime
using enum Axis;

// Parameters that the same ranks have, with the strategy of these ranks.
struct Replicated {
  ParameterSet set;
  std::unique_ptr<Communicator> replicas;
  std::optional<WholeMatrices> matrices = {};  // outlives sums in the background, which may use it
  std::unique_ptr<DataParallel> data = {};
  std::optional<SharedGradients> shared = {};
};

class Runtime final : public TrainingRank, public ScheduleObserver {
 public:
  Runtime(RankContext& context, const Plan& plan, Backend& backend)
      : context_(context),
        plan_(plan),
        rank_(context.world.rank()),
        pipeline_(plan.mesh.communicator(context.world, {pp})),
        model_ranks_(plan.mesh.communicator(context.world, model_axes())),
        model_(plan, context.world, backend, context.ledger),
        split_(model_.ranks.tensor),
        tokens_(model_.ranks.context),
        experts_(model_.ranks.experts),
        inputs_(context, plan, *model_.ranks.tensor_group, split_),
        tied_(*pipeline_, model_.parameters, model_.embedding_copies(), plan.ends_of_pipeline()),
        balance_(context.world.subgroup(plan.router_group(rank_)), context.ledger, plan,
                 model_.routers()),
        exposed_(context.world) {
    const Environment unknown;
    for (const ParameterSet set : model_.sets()) {
      backend.observe(model_.of(set), set);
      Replicated& own = sets_.emplace_back(Replicated{
          .set = set, .replicas = context.world.subgroup(plan.replica_group(rank_, set))});
      own.data = make_data_parallel(context, *own.replicas, plan, model_, set, backend);
      const ParameterTerms terms(plan, rank_, model_, set, unknown);
      own.shared.emplace(
          *model_.ranks.tensor_group, model_.of(set),
          [&own](const auto& ranges) { return own.data->own_gradients(ranges); },
          terms.summed_together(), [&terms](const auto& ranges) { return terms.held(ranges); },
          context.ledger);
      own.matrices.emplace(
          optimizer_settings(plan.options), model_.of(set), backend, context.ledger,
          make_matrix_exchange(plan, context.world, model_.of(set), set, backend, context.ledger));
      own.data->take_matrices(*own.matrices);
    }
    if (plan.stage_options().kept_input != KeptInput::whole && !plan.recomputes_stages())
      for (auto& [number, stage] : model_.stages) stage.keep_inputs_in(inputs_);
    executor_.emplace(
        context, *pipeline_, plan, model_.stages, inputs_, *this,
        [this] {
          return split_.waiting_seconds() + tokens_.waiting_seconds() +
                 model_.ranks.sharers.waiting_seconds() + experts_.waiting_seconds() +
                 waited_for_replicas();
        },
        model_.ranks.turns.get());
  }

  void load_weights() override {
    const FirstWeights weights(plan_);
    for (Replicated& own : sets_) own.data->load([&] { weights.set(model_.of(own.set)); });
    set_biases(routers(), weights.biases());
  }
  void gather(Gathered what, const PartSink& sink) override {
    for (const auto set : {ParameterSet::dense, ParameterSet::experts}) {
      const bool is_here = !model_.of(set).list().empty();
      const DataParallel::FlatBuffer own =
          is_here ? of(set).flat(what) : DataParallel::FlatBuffer{};
      gather_parts(context_, plan_, set, own.all, sink);
    }
  }

  void step_in_backward(double rate) override {
    for (Replicated& own : sets_) {
      own.matrices->begin_step();
      own.data->step_in_backward([this, &own, rate](Optimizer& optimizer, auto places) {
        communicate([&] {
          own.shared->reduce(model_.of(own.set).ranges_of(places));
          own.matrices->step_within(places, own.data->optimizers(), rate, 1);
        });
        optimizer.step(rate, 1);
      });
    }
  }
  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    for (Replicated& own : sets_) own.data->begin(loss_scale);
    experts_.begin_step();
    model_.take_routing();  // of an earlier step that nobody has asked for
    balance_.begin_step();
    // Aligned, so that virtual time shows the bubble of this step only.
    if (plan_.has_pipeline()) context_.world.transport().align();
    // A replica that steps alone takes the mean over its own sequences.
    loss_scale *= plan_.replicas_apart();
    const double loss = executor_->run(micro_batches, total_targets, loss_scale);
    // lab: solution
    if (!plan_.sums_tied_copies_last()) {
      communicate([&] { tied_.add_gradients(); });
      tied_.for_each_copy([this](int parameter) {
        of(ParameterSet::dense).gradient_ready(parameter, ParameterSet::dense);
      });
    }
    for (Replicated& own : sets_) own.data->finish();
    if (plan_.sums_tied_copies_last()) communicate([&] { tied_.add_gradients(); });
    if (!plan_.options.optimizer_in_backward)
      communicate([&] {
        for (Replicated& own : sets_) own.shared->reduce();
      });
    // lab: given
    return own_part(loss);
  }

  RoutingTotals take_routing() override {
    RoutingTotals all = model_.take_routing();
    all.balance += balance_.loss();
    // Ranks that split layers but not sequences have routed the same tokens.
    const LayerSplit& split = split_.split();
    return split.by_sequence || split.rank == 0 ? all : RoutingTotals{};
  }
  std::vector<LayerRouter> routers() override { return model_.routers(); }
  double gradient_norm() override {
    begin_norm(context_.world);
    double square = 0;
    // lab: solution
    for (Replicated& own : std::views::reverse(sets_)) {
      square += own.data->squared_norm();
      // The other parameters are the same along ep, and come later.
      if (own.set == ParameterSet::experts)
        communicate([&] { sum_of_norm(*model_.ranks.expert_group, square); });
    }
    communicate([&] { sum_of_norm(*model_ranks_, square); });
    // lab: given
    return std::sqrt(square);
  }
  void update(double learning_rate, double gradient_scale) override {
    // Before the step: its gathers may still be under way afterwards.
    balance_.step(model_.routing());
    if (plan_.options.optimizer_in_backward) return;
    for (Replicated& own : sets_)
      communicate(
          [&] { own.matrices->step(own.data->optimizers(), learning_rate, gradient_scale); });
    for (Replicated& own : sets_)
      if (is_trained(own.set)) own.data->step(learning_rate, gradient_scale);
  }
  void skip() override {
    experts_.skip_step();
    for (Replicated& own : sets_) own.data->skip();
  }
  void wait_for_parameters() override {
    for (Replicated& own : sets_) own.data->wait_for_parameters();
  }
  double loss_sum(const Batch& batch) override { return own_part(executor_->loss_sum(batch)); }

  std::vector<TrainingState> states() override {
    std::vector<TrainingState> states;
    for (Replicated& own : sets_)
      if (is_trained(own.set)) states.emplace_back(own.data->state()).matrices = &*own.matrices;
    return states;
  }
  void take_restored() override {
    for (Replicated& own : sets_) own.data->take_restored();
    if (!plan_.trains_adapters()) return;
    const FirstWeights weights(plan_);
    for (Replicated& own : sets_)
      if (!is_trained(own.set)) own.data->load([&] { weights.set(model_.of(own.set)); });
  }
  PipelineRecord finish() override;
  std::vector<double> last_passes() const override { return executor_->runs().back().passes; }
  ExposedSeconds exposed() const override {
    return {.layers = split_.waiting_seconds(),
            .sequence = tokens_.waiting_seconds() + model_.ranks.sharers.waiting_seconds(),
            .experts = experts_.waiting_seconds(),
            .replicas = waited_for_replicas() + balance_.waiting_seconds(),
            .pipeline = executor_->waiting_seconds(),
            .model = exposed_.seconds()};
  }
  double communication_seconds() const override {
    double seconds =
        exposed_seconds() - tokens_.waiting_seconds() + tokens_.communication_seconds();
    for (const Replicated& own : sets_)
      seconds += own.data->communication_seconds() - own.data->waiting_seconds();
    return seconds;
  }
  TierTraffic tier_traffic() const override {
    TierTraffic all = inputs_.traffic();
    for (const Replicated& own : sets_) all = all + own.data->tier_traffic();
    return all;
  }
  std::int64_t attention_pairs() const override { return tokens_.pairs(); }
  std::optional<std::int64_t> expert_rows() const override { return experts_.computed(); }
  Prediction prediction() const override {
    Environment environment{.dispatched = experts_.dispatched(),
                            .expert_ranks_per_node = experts_.ranks_per_node(),
                            .computes_on_host = computes_on_host(context_.ledger),
                            .multiplies_bf16 = multiplies_bf16(context_.ledger)};
    for (const Replicated& own : sets_) environment.replicas[own.set] = own.data->facts();
    return predict(plan_, rank_, environment);
  }

 private:
  // Strategies see all that the executor does to their set, but of tied copies only the sum.
  void before_use(const Unit& unit, UnitUse use) override {
    if (use == UnitUse::backward || use == UnitUse::input_gradient)
      balance_.before_backward(model_.routing());
    of(unit.set).before_use(unit, use);
  }
  void after_use(const Unit& unit, UnitUse use) override { of(unit.set).after_use(unit, use); }
  void gradient_ready(int parameter, ParameterSet set) override {
    if (plan_.sums_tied_copies_last()) return of(set).gradient_ready(parameter, set);
    if (set == ParameterSet::dense && tied_.completes(parameter)) return;
    of(set).gradient_ready(parameter, set);
  }
  void take(const Action& collective) override {
    for (Replicated& own : sets_) own.data->take(collective);
  }
  DataParallel& of(ParameterSet set) {
    return *std::ranges::find(sets_, set, &Replicated::set)->data;
  }
  double waited_for_replicas() const {
    double seconds = 0;
    for (const Replicated& own : sets_) seconds += own.data->waiting_seconds();
    return seconds;
  }

  // All tensor-parallel ranks of the last stage have its loss; only the first one reports it.
  double own_part(double loss) const { return plan_.place(rank_, tp) == 0 ? loss : 0; }

  // Runs work that waits for the other ranks of this replica.
  void communicate(auto work) {
    if (model_ranks_->size() == 1) return work();
    const Trace::Span span(context_.trace, 0, "wait for the other ranks of the model", "wait");
    exposed_.time(work);
  }

  RankContext& context_;
  const Plan& plan_;
  int rank_;
  std::unique_ptr<Communicator> pipeline_, model_ranks_;
  RankModel model_;
  TensorRanks& split_;
  ContextRanks& tokens_;
  ExpertRanks& experts_;
  KeptInputs inputs_;
  TiedEmbedding tied_;
  RouterBalance balance_;
  std::deque<Replicated> sets_;
  std::optional<Executor> executor_;
  Stopwatch exposed_;  // in addition to the executor's, the split layers' and the replicas'
};

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

// lab: end

}  // namespace

// lab: make_runtime
std::unique_ptr<TrainingRank> make_runtime(RankContext& context, const Plan& plan,
                                           Backend& backend) {
  return std::make_unique<Runtime>(context, plan, backend);
}
// lab: end

}  // namespace lockstep
