#include "parallel/serial/serial.h"

#include <cmath>

#include "models/gpt/gpt.h"
#include "models/gpt/weights.h"
#include "models/optimizers/whole_matrices.h"
#include "parallel/plan/environment.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/compute_clock.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/router_balance.h"

namespace lockstep {
namespace {

class Serial final : public TrainingRank, public PassObserver {
 public:
  Serial(RankContext& context, const Plan& plan, Backend& backend)
      : plan_(plan),
        ledger_(context.ledger),
        backend_(backend),
        model_(plan.model, backend, plan.options.dtype, context.ledger, true,
               model_options(plan.options)),
        balance_(nullptr, context.ledger, plan, model_.routers()),
        compute_clock_(context.world, plan.options),
        optimizer_(new_optimizer(optimizer_settings(plan.options), model_.parameters(), backend,
                                 context.ledger)),
        matrices_(optimizer_settings(plan.options), model_.parameters(), backend, context.ledger) {
    model_.observe(*this);
  }

  void load_weights() override {
    const FirstWeights weights(plan_);
    weights.set(model_.parameters());
    set_frozen(weights);
    set_biases(routers(), weights.biases());
  }
  void gather(Gathered what, const PartSink& sink) override {
    give_part(model_.parameters(), what, sink);
  }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    model_.parameters().zero_gradients();
    model_.take_routing();  // of an earlier step that nobody has asked for
    balance_.begin_step();
    double loss = 0;
    for (const Batch& batch : micro_batches)
      loss += compute_clock_.forward_backward(model_, batch, total_targets, loss_scale);
    return loss;
  }
  RoutingTotals take_routing() override {
    RoutingTotals all = model_.take_routing();
    all.balance += balance_.loss();
    return all;
  }
  std::vector<LayerRouter> routers() override { return model_.routers(); }
  double gradient_norm() override {
    return std::sqrt(backend_.squared_norm(model_.parameters().gradients()));
  }
  void update(double learning_rate, double gradient_scale) override {
    balance_.step(model_.routing());
    matrices_.step({optimizer_.get()}, learning_rate, gradient_scale);
    optimizer_->step(learning_rate, gradient_scale);
  }
  double loss_sum(const Batch& batch) override { return model_.loss_sum(batch); }

  std::vector<TrainingState> states() override {
    return {{.optimizers = {optimizer_.get()},
             .parameters = &model_.parameters(),
             .matrices = &matrices_}};
  }
  void take_restored() override { set_frozen(FirstWeights(plan_)); }

  Prediction prediction() const override {
    return predict(plan_, 0,
                   {.computes_on_host = computes_on_host(ledger_),
                    .multiplies_bf16 = multiplies_bf16(ledger_)});
  }

 private:
  void set_frozen(const FirstWeights& weights) {
    if (!plan_.trains_adapters()) return;
    weights.set(model_.frozen());
    weights.set(model_.packed());
  }
  void before_use(const Unit&, UnitUse use) override {
    if (use == UnitUse::backward) balance_.before_backward(model_.routing());
  }

  const Plan& plan_;
  const Ledger& ledger_;
  Backend& backend_;
  Gpt model_;
  RouterBalance balance_;
  ComputeClock compute_clock_;
  std::unique_ptr<Optimizer> optimizer_;
  WholeMatrices matrices_;
};

}  // namespace

std::unique_ptr<TrainingRank> make_serial(RankContext& context, const Plan& plan,
                                          Backend& backend) {
  return std::make_unique<Serial>(context, plan, backend);
}

}  // namespace lockstep
