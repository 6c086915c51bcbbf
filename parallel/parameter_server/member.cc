#include "parallel/parameter_server/member.h"

#include <utility>

#include "models/ops/narrow_types.h"
#include "parallel/checkpoint/copy.h"
#include "parallel/plan/environment.h"
#include "parallel/rank/first_weights.h"

namespace lockstep {
namespace {

std::vector<Communicator> ends_of(Communicator& world, const Roles& roles) {
  std::vector<Communicator> ends;
  if (!roles.two_ends) {
    ends.push_back(world.duplicate(1));
    return ends;
  }
  for (Communicator& end : world.two_ends(1)) ends.push_back(std::move(end));
  return ends;
}

}  // namespace

Member::Member(RankContext& context, const Plan& plan, Backend& backend, Backend& server_backend)
    : context_(context),
      plan_(plan),
      options_(plan.options),
      roles_(roles_of(plan.options, context.world.size())),
      rank_(context.world.rank()),
      backend_(backend),
      model_(plan.model, backend, plan.options.dtype, context.ledger, roles_.is_worker(rank_),
             model_options(plan.options)),
      compute_clock_(context.world, plan.options),
      ends_(ends_of(context.world, roles_)),
      worker_(ends_.front(), roles_) {
  if (!roles_.is_server(rank_)) return;
  const Parameters& all = model_.parameters();
  const int own = roles_.server_of_rank(rank_);
  const Parts part(all.count(), roles_.servers);
  Slice values, gradients;
  if (roles_.server_keeps_own()) {
    own_values_ = Tensor({part[own]}, all.dtype(), context.ledger, MemoryUse::parameters);
    own_gradients_ = Tensor({part[own]}, all.dtype(), context.ledger, MemoryUse::gradients);
    values = own_values_.slice(), gradients = own_gradients_.slice();
  } else {
    values = all.values().part(part.offset(own), part[own]);
    gradients = all.gradients().part(part.offset(own), part[own]);
  }
  gradients_ = gradients;
  server_.emplace(server_end(), roles_, values, gradients);
  optimizer_ = new_optimizer(optimizer_settings(options_), all.list(), part.offset(own), values,
                             gradients, server_backend, context.ledger);
}

void Member::load_weights() {
  if (rank_ == 0) FirstWeights(plan_).set(model_.parameters());
  // Rank 0 sends the servers their parts, and they send everything to all workers.
  if (rank_ == 0) worker_.push(model_.parameters().values());
  if (server_) server_->take_parameters(0);
  spread_parameters();
}

// Every worker has all the final weights.
void Member::gather(Gathered what, const PartSink& sink) {
  if (rank_ == 0) give_part(model_.parameters(), what, sink);
}

// The servers' parts together are the whole state.
std::vector<TrainingState> Member::states() {
  TrainingState state{.parameters = &model_.parameters()};
  if (optimizer_) state.optimizers.push_back(optimizer_.get());
  return {state};
}

void Member::spread_parameters() {
  if (server_) server_->reply();
  if (roles_.is_worker(rank_)) worker_.pull(model_.parameters().values());
  if (server_) server_->finish();
}

double Member::compute(std::span<const Batch> micro_batches, Count targets, double loss_scale) {
  model_.parameters().zero_gradients();
  double loss = 0;
  for (const Batch& batch : micro_batches)
    loss += compute_clock_.forward_backward(model_, batch, targets, loss_scale);
  return loss;
}

Terms Member::states() const {
  const bool worker = roles_.is_worker(rank_), server = roles_.is_server(rank_);
  const Count own = server ? own_count() * element() : 0;
  const Count kept = (worker ? model_.parameters().count() * element() : 0) +
                     (server && roles_.server_keeps_own() ? own : 0);
  const DType dtype = model_.parameters().dtype();
  const OptimizerSettings settings = optimizer_settings(options_);
  const std::string all_or_part = roles_.two_ends ? "(1 + 1/N) * Psi * beta"
                                  : worker        ? "Psi * beta"
                                                  : "Psi/S * beta";
  Terms terms{.part = PlanPart::states};
  terms.hold({.use = MemoryUse::parameters, .bytes = kept, .formula = all_or_part});
  terms.hold({.use = MemoryUse::gradients, .bytes = kept, .formula = all_or_part});
  terms.hold({.use = MemoryUse::optimizer,
              .bytes = own / element() * optimizer_bytes(settings, dtype, Parameter{}),
              .formula = server ? optimizer_formula(settings, dtype, "Psi/S") : "0"});
  const bool copies = server && computes_on_host(context_.ledger);
  terms.hold({.use = MemoryUse::checkpoints,
              .bytes = checkpoint_copy_bytes(plan_, copies ? own_count() : 0),
              .formula = copies ? checkpoint_copy_formula(plan_, "Psi/S") : "0"});
  return terms;
}

}  // namespace lockstep
