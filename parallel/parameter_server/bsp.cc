// Bulk synchronous: all workers take every step together. The servers wait for all pushes, add them
// up, each in an order that is always the same, and answer. The result is one rank's.
#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "parallel/parameter_server/member.h"
#include "parallel/parameter_server/modes.h"

namespace lockstep {
namespace {

constexpr std::string_view norm_algorithm = "recursive_doubling";

class Bsp final : public Member {
 public:
  Bsp(RankContext& context, Gpt& model, const TrainOptions& options)
      : Member(context, model, options),
        servers_(context.world.split(roles_.is_server(rank_) ? 0 : -1, rank_)) {
    if (servers_) servers_->set_label("norm");
  }

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

  // Known to the servers, which need it.
  double gradient_norm() override {
    if (!server_) return 0;
    double square = squared_norm(gradients_);
    communicate([&] {
      all_reduce(*servers_, host_slice(std::span(&square, 1)), ReduceOp::sum, norm_algorithm);
    });
    return std::sqrt(square);
  }

  void update(double learning_rate, double gradient_scale) override {
    if (server_) optimizer_->step(learning_rate, gradient_scale);
    communicate([&] { spread_parameters(); });
  }

  std::vector<TheoryRecord> theory() const override {
    // A rank that is both exchanges nothing with itself.
    const int itself = roles_.colocated ? 1 : 0;
    const bool server = roles_.is_server(rank_);
    const Count own = server ? own_count() : 0;
    // Elements: what is pushed one way is pulled the other way.
    Count elements = 0, messages = 0;
    Traffic norm;
    if (roles_.is_worker(rank_)) {
      elements += model_.parameters().count() - own;
      messages += roles_.servers - itself;
    }
    if (server) {
      elements += (roles_.workers() - itself) * own;
      messages += roles_.workers() - itself;
      norm = find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm)
                 .traffic({.ranks = roles_.servers, .count = 1, .element_bytes = sizeof(double)},
                          roles_.server_of_rank(rank_));
    }
    const std::string bytes = roles_.colocated ? "2(N-1)/N * Psi * beta + norm"
                              : server         ? "W/S * Psi * beta + norm"
                                               : "Psi * beta";
    const Count scalar = sizeof(double);
    std::vector<TheoryRecord> lines = {
        line("sent_bytes", bytes, elements * element() + norm.sent_elements * scalar),
        line("received_bytes", bytes, elements * element() + norm.received_elements * scalar),
        line("sent_messages",
             roles_.colocated ? "2(N-1) + norm"
             : server         ? "W + norm"
                              : "S",
             messages + norm.sent_messages)};
    for (TheoryRecord& state : states()) lines.push_back(std::move(state));
    return lines;
  }

 private:
  std::unique_ptr<Communicator> servers_;  // among themselves
};

}  // namespace

std::unique_ptr<Technique> make_bsp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<Bsp>(context, model, options);
}

}  // namespace lockstep
