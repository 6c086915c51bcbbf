// Asynchronous: servers apply every push by itself. Under `asp` workers never wait for each other,
// under `ssp` only for those that are too far behind.
#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <utility>

#include "parallel/parameter_server/member.h"
#include "parallel/parameter_server/modes.h"

namespace lockstep {
namespace {

class Asp final : public Member {
 public:
  Asp(RankContext& context, Gpt& model, const TrainOptions& options)
      : Member(context, model, options) {
    if (roles_.two_ends && context.trace) context.trace->name_track(server_end().track(), "server");
  }
  // While an error ends this rank's program, nobody will come to its server.
  ~Asp() override {
    if (serving_) server_end().transport().abandon();
  }

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
      try {
        worker_.push(model_.parameters().gradients(), norm_);
        worker_.pull_any(model_.parameters().values());
      } catch (const Error&) {
        // Its own server's failure is the reason, and this its consequence.
        if (gave_up_) finish_serving();
        throw;
      }
    });
  }

  void serve() override {
    if (roles_.two_ends)
      serving_ = server_end().start_line(
          [this, threads = omp_get_max_threads()] { serve_beside_worker(threads); });
    else if (server_)
      serve_all();
  }
  void finish_serving() override {
    serving_.reset();
    if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
  }
  bool is_dispensable() const override { return !server_; }
  void depart() override {
    ends_.front().transport().depart();
    departed_ = true;
  }

  void finish() override {
    if (roles_.two_ends) {
      // The others' servers come when their slowest worker has taken its last step.
      server_->reply();
      worker_.pull_any(model_.parameters().values(), options_.steps);
      server_->finish();
    } else if (server_) {
      // Through the world, which those that departed have not left.
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
    if (roles_.colocated) {
      // What its worker and its server exchange stays on the rank.
      const Count others = workers - 1, part = own_count() * element();
      const Count bytes = model_.parameters().count() * element() - part + others * (part + norm);
      const std::string formula = "steps * (2(N-1)/N * Psi * beta + 8(N-1))";
      lines.push_back(line("sent_bytes", formula, steps * bytes));
      lines.push_back(line("received_bytes", formula, steps * bytes));
      lines.push_back(line("sent_messages", "steps * 3(N-1)", steps * 3 * others));
    } else if (server_) {
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
  void serve_all() {
    const int most_lead = options_.mode == "ssp" ? options_.staleness : Server::unlimited;
    server_->serve(options_.steps, most_lead, [&](const Push& push) { apply(push); });
  }
  void serve_beside_worker(int threads) {
    omp_set_num_threads(threads);  // OpenMP keeps it for each thread that starts work
    try {
      serve_all();
    } catch (...) {
      failure_ = std::current_exception();
      gave_up_ = true;
      server_end().transport().abandon();
    }
  }

  void apply(const Push& push) {
    const Trace::Span span(context_.trace, roles_.two_ends ? server_end().track() : 0,
                           fmt::format("update by worker {}, its step {}, {} ahead, {} behind",
                                       push.worker, push.step, push.lead, push.delay),
                           "optimizer");
    optimizer_->step(learning_rate(options_, push.step), clip_factor(options_, push.gradient_norm));
    updates_.push_back({.rank = push.worker,
                        .step = push.step,
                        .server = roles_.server_of_rank(rank_),
                        .seconds = server_end().transport().now_seconds() - begin_seconds_,
                        .lead = push.lead,
                        .delay = push.delay});
  }

  double norm_ = 0;
  double begin_seconds_ = 0;
  bool departed_ = false;
  std::vector<UpdateRecord> updates_;
  // The server beside a worker, and what ended it.
  std::exception_ptr failure_;
  std::atomic<bool> gave_up_ = false;
  std::unique_ptr<Concurrency::Task> serving_;
};

}  // namespace

std::unique_ptr<Technique> make_asp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<Asp>(context, model, options);
}

}  // namespace lockstep
