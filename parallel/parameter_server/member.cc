#include "parallel/parameter_server/member.h"
#include "models/narrow_backend.h"

#include <utility>

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

Member::Member(RankContext& context, Gpt& model, const TrainOptions& options)
    : context_(context),
      options_(options),
      roles_(roles_of(options, context.world.size())),
      rank_(context.world.rank()),
      model_(model),
      pace_(context.world, options),
      ends_(ends_of(context.world, roles_)),
      worker_(ends_.front(), roles_) {
  if (!roles_.is_server(rank_)) return;
  const Parameters& all = model.parameters();
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
  optimizer_.emplace(all.list(), part.offset(own), values, gradients,
                     AdamWOptions{options.beta1, options.beta2, options.eps, options.weight_decay},
                     context.ledger);
}

void Member::prepare() {
  // Rank 0 gives the servers their parts, and they give all workers everything.
  if (rank_ == 0) worker_.push(model_.parameters().values());
  if (server_) server_->take_parameters(0);
  spread_parameters();
}

Share Member::share(int global_batch) const {
  if (!roles_.is_worker(rank_)) return {};
  return Share{.count = global_batch}.part(rank_, roles_.workers());
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
    loss += pace_.forward_backward(model_, batch, targets, loss_scale);
  return loss;
}

TheoryRecord Member::line(const char* quantity, std::string formula, Count expected) const {
  return {.quantity = quantity,
          .rank = rank_,
          .formula = std::move(formula),
          .expected = static_cast<double>(expected)};
}

std::vector<TheoryRecord> Member::states() const {
  const bool worker = roles_.is_worker(rank_), server = roles_.is_server(rank_);
  const Count own = server ? own_count() * element() : 0;
  const Count kept = (worker ? model_.parameters().count() * element() : 0) +
                     (server && roles_.server_keeps_own() ? own : 0);
  const DType dtype = model_.parameters().dtype();
  const std::string states = is_narrow(dtype) ? "12 * Psi/S" : "2 * Psi/S * beta";
  const std::string all_or_part = roles_.two_ends ? "(1 + 1/N) * Psi * beta"
                                  : worker        ? "Psi * beta"
                                                  : "Psi/S * beta";
  return {line("peak_bytes.parameters", all_or_part, kept),
          line("peak_bytes.gradients", all_or_part, kept),
          line("peak_bytes.optimizer", server ? states : "0",
               own / element() * optimizer_bytes(dtype))};
}

}  // namespace lockstep
