// Asynchronous: servers apply every push by itself. Under `asp` workers never wait for each other,
// under `ssp` only for those that are too far behind.
#include <fmt/format.h>

#include <cmath>

#include "parallel/parameter_server/member.h"
#include "parallel/parameter_server/modes.h"

namespace lockstep {
namespace {

class Asp final : public Member {
 public:
  Asp(RankContext& context, Gpt& model, const TrainOptions& options)
      : Member(context, model, options) {}

  void prepare() override {
    Member::prepare();
    context_.world.transport().align();
    begin_seconds_ = context_.world.transport().now_seconds();
  }
  bool in_step() const override { return false; }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    // Its gradients are applied by themselves: those of the mean over its own part of the batch.
    const Count own = share(options_.global_batch).count;
    return compute(micro_batches, total_targets * own / options_.global_batch, loss_scale);
  }
  double gradient_norm() override {
    norm_ = std::sqrt(squared_norm(model_.parameters().gradients()));
    return norm_;
  }
  // The servers do it; from the norm they know how to clip.
  void update(double, double) override {
    communicate([&] {
      worker_.push(model_.parameters().gradients(), norm_);
      worker_.pull_any(model_.parameters().values());
    });
  }

  void serve() override {
    const int most_lead = options_.mode == "ssp" ? options_.staleness : Server::unlimited;
    server_->serve(options_.steps, most_lead, [&](const Push& push) { apply(push); });
  }
  void depart() override {
    comm_.transport().depart();
    departed_ = true;
  }

  // Through the world, which those that departed have not left.
  void finish() override {
    if (server_) {
      Server everywhere(context_.world, roles_, own_values_.slice(), gradients_);
      everywhere.reply();
      everywhere.finish();
    } else {
      // The servers come when the slowest worker has taken its last step, each of which may take as
      // long as the deadline allows.
      Worker(context_.world, roles_).pull_any(model_.parameters().values(), options_.steps);
    }
  }

  std::vector<UpdateRecord> updates() const override { return updates_; }

  std::vector<TheoryRecord> theory() const override {
    std::vector<TheoryRecord> lines = states();
    if (departed_ || (server_ && server_->lost_a_worker())) return lines;
    const Count steps = options_.steps, norm = sizeof(double);
    const Count workers = roles_.workers(), servers = roles_.servers;
    if (server_) {
      const Count part = own_count() * element();
      lines.push_back(line("sent_bytes", "steps * W/S * Psi * beta", steps * workers * part));
      lines.push_back(line("received_bytes", "steps * W * (Psi/S * beta + 8)",
                           steps * workers * (part + norm)));
      lines.push_back(line("sent_messages", "steps * W", steps * workers));
    } else {
      const Count all = model_.parameters().count() * element();
      lines.push_back(
          line("sent_bytes", "steps * (Psi * beta + 8 S)", steps * (all + norm * servers)));
      lines.push_back(line("received_bytes", "steps * Psi * beta", steps * all));
      lines.push_back(line("sent_messages", "steps * 2 S", steps * 2 * servers));
    }
    return lines;
  }

 private:
  void apply(const Push& push) {
    const Trace::Span span(context_.trace, 0,
                           fmt::format("update by worker {}, its step {}, {} ahead, {} behind",
                                       push.worker, push.step, push.lead, push.delay),
                           "optimizer");
    optimizer_->step(learning_rate(options_, push.step), clip_factor(options_, push.gradient_norm));
    updates_.push_back({.rank = push.worker,
                        .step = push.step,
                        .server = roles_.server_of_rank(rank_),
                        .seconds = context_.world.transport().now_seconds() - begin_seconds_,
                        .lead = push.lead,
                        .delay = push.delay});
  }

  double norm_ = 0;
  double begin_seconds_ = 0;
  bool departed_ = false;
  std::vector<UpdateRecord> updates_;
};

}  // namespace

std::unique_ptr<Technique> make_asp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<Asp>(context, model, options);
}

}  // namespace lockstep
