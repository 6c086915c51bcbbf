// Bulk synchronous: see make_synchronous_ps().
#include <cmath>

#include "collectives/operations/split.h"
#include "parallel/parameter_server/member.h"
#include "parallel/parameter_server/ps.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/norm.h"

namespace lockstep {
namespace {

class SynchronousMember final : public Member {
 public:
  SynchronousMember(RankContext& context, const Plan& plan, Backend& backend)
      : Member(context, plan, backend, backend),
        servers_(split(context.world, roles_.is_server(rank_) ? 0 : -1, rank_)) {}

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    double loss = 0;
    if (roles_.is_worker(rank_)) {
      loss = compute(micro_batches, total_targets, loss_scale);
      worker_.push(model_.parameters().gradients());
    }
    if (server_) communicate([&] { server_->collect(); });
    return loss;
  }

  // Only the servers have the sums of the gradients, each for its part.
  void gather(Gathered what, const PartSink& sink) override {
    if (what == Gathered::values) return Member::gather(what, sink);
    Communicator& world = context_.world;
    world.set_label("weights");
    if (rank_ != 0) {
      if (server_) world.send(gradients_, 0);
      return;
    }
    const Parameters& all = model_.parameters();
    const Tensor sums({all.count()}, all.dtype(), context_.ledger, MemoryUse::workspace);
    const Parts part(all.count(), roles_.servers);
    for (int s = 0; s < roles_.servers; ++s) {
      const Slice theirs = sums.slice().part(part.offset(s), part[s]);
      if (roles_.rank_of_server(s) == 0)
        world.copy(theirs, gradients_);
      else
        world.recv(theirs, roles_.rank_of_server(s));
    }
    give(all, sums.slice(), sink);
  }

  // Computed by the servers, which need it.
  double gradient_norm() override {
    worker_.finish_push();  // a step that is skipped pulls nothing
    if (!server_) return 0;
    double square = backend_.squared_norm(gradients_);
    communicate([&] { sum_of_norm(*servers_, square); });
    return std::sqrt(square);
  }

  void update(double learning_rate, double gradient_scale) override {
    if (server_) optimizer_->step(learning_rate, gradient_scale);
    communicate([&] { spread_parameters(); });
  }

  Prediction prediction() const override { return sum_of_terms({states(), exchange()}); }

 private:
  Terms exchange() const {
    // A rank that is both exchanges nothing with itself.
    const int itself = roles_.colocated ? 1 : 0;
    const bool worker = roles_.is_worker(rank_), server = roles_.is_server(rank_);
    const Count own = server ? own_count() : 0;
    Traffic push;
    if (worker) {
      push.sent_elements = model_.parameters().count() - own;
      push.sent_messages = roles_.servers - itself;
    }
    if (server) {
      push.received_elements = (roles_.workers() - itself) * own;
      push.received_messages = roles_.workers() - itself;
    }
    const Traffic pull = {.sent_messages = push.received_messages,
                          .sent_elements = push.received_elements,
                          .received_messages = push.sent_messages,
                          .received_elements = push.sent_elements};
    const char* const both = "(N-1)/N * Psi * beta";
    Terms terms{.part = PlanPart::gradients};
    terms.send("push", push, element(), roles_.colocated ? both : worker ? "Psi * beta" : "0");
    terms.send("pull", pull, element(),
               roles_.colocated ? both
               : server         ? "W/S * Psi * beta"
                                : "0");
    if (server && roles_.servers > 1)
      terms.send(norm_label, norm_traffic(roles_.servers, roles_.server_of_rank(rank_)),
                 sizeof(double));
    terms.bytes_formula = roles_.colocated ? "2(N-1)/N * Psi * beta + norm"
                          : server         ? "W/S * Psi * beta + norm"
                                           : "Psi * beta";
    terms.messages_formula = roles_.colocated ? "2(N-1) + norm" : server ? "W + norm" : "S";
    return terms;
  }

  std::unique_ptr<Communicator> servers_;  // the servers' group
};

}  // namespace

std::unique_ptr<TrainingRank> make_synchronous_ps(RankContext& context, const Plan& plan,
                                                  Backend& backend) {
  return std::make_unique<SynchronousMember>(context, plan, backend);
}

}  // namespace lockstep
