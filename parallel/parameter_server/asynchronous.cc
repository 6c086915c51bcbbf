#include "parallel/parameter_server/asynchronous.h"

#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <utility>

#include "models/ops/device_backend.h"
#include "parallel/checkpoint/checkpoints.h"
#include "parallel/parameter_server/member.h"
#include "parallel/rank/report.h"

namespace lockstep {
namespace {

class AsynchronousMember final : public Member {
 public:
  AsynchronousMember(RankContext& context, const Plan& plan, Backend& backend,
                     Backend& server_backend)
      : Member(context, plan, backend, server_backend) {
    if (roles_.two_ends && context.trace) context.trace->name_track(server_end().track(), "server");
  }
  // If an error ends this rank's program, no worker will contact its server.
  ~AsynchronousMember() override {
    if (serving_) server_end().transport().abandon();
  }

  void load_weights() override {
    Member::load_weights();
    start_clock();
  }
  void take_restored() override {
    Member::take_restored();
    start_clock();
  }
  // Steps that were taken before this run; the run takes the others.
  void skip_steps(int taken) { taken_before_ = taken; }

  double accumulate(std::span<const Batch> micro_batches, Count, double loss_scale) override {
    // Servers apply its gradients on their own, so they are gradients of the mean over its own
    // targets.
    Count own = 0;
    for (const Batch& batch : micro_batches)
      own += std::ranges::count_if(batch.targets, [](auto target) { return target != no_target; });
    return compute(micro_batches, std::max(Count{1}, own), loss_scale);
  }
  double gradient_norm() override {
    norm_ = std::sqrt(backend_.squared_norm(model_.parameters().gradients()));
    return norm_;
  }
  // The servers update. They need the norm to clip.
  void update(double, double) override {
    communicate([&] {
      try {
        worker_.push(model_.parameters().gradients(), norm_);
        worker_.pull_any(model_.parameters().values());
      } catch (const Error&) {
        // The failure of its own server is the cause, this error its consequence.
        if (gave_up_) finish_serving();
        throw;
      }
    });
  }

  // A rank that does not compute serves until the workers have taken their steps. A rank that also
  // computes returns at once, and calls finish_serving() after its last step.
  void serve() {
    if (roles_.two_ends)
      serving_ = server_end().start_thread(
          [this, threads = omp_get_max_threads()] { serve_next_to_worker(threads); });
    else if (server_)
      serve_all();
  }
  void finish_serving() {
    serving_.reset();
    if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
  }
  // Whether the others can continue if this rank fails. If so, it calls depart().
  bool is_dispensable() const { return !server_; }
  void depart() {
    ends_.front().transport().depart();
    departed_ = true;
  }

  // Sends the final weights to every worker.
  PipelineRecord finish() override {
    if (roles_.two_ends) {
      // The other servers answer when their slowest worker has taken its last step.
      server_->reply();
      worker_.pull_any(model_.parameters().values(), own_steps());
      server_->finish();
    } else if (server_) {
      // Uses the world, which departed ranks have not left.
      Server everywhere(context_.world, roles_, own_values_.slice(), gradients_);
      everywhere.reply();
      everywhere.finish();
    } else {
      // The servers answer when the slowest worker has taken its last step. Each step may take as
      // long as the timeout.
      Worker(context_.world, roles_).pull_any(model_.parameters().values(), own_steps());
    }
    return {};
  }

  // The steps that took effect on this rank, in order.
  const std::vector<UpdateRecord>& updates() const { return updates_; }

  Prediction prediction() const override { return sum_of_terms({states(), exchange()}); }

 private:
  // Traffic of the whole run.
  Terms exchange() const {
    Terms terms{.part = PlanPart::gradients};
    terms.has_unknown_traffic = departed_ || (server_ && server_->lost_a_worker());
    if (terms.has_unknown_traffic) return terms;
    const Count steps = own_steps(), norm = sizeof(double);
    const Count workers = roles_.workers(), servers = roles_.servers;
    Volume total;
    if (roles_.colocated) {
      // Messages between its worker and its server stay on the rank.
      const Count others = workers - 1, part = own_count() * element();
      const Count bytes = model_.parameters().count() * element() - part + others * (part + norm);
      terms.bytes_formula = "steps * (2(N-1)/N * Psi * beta + 8(N-1))";
      terms.messages_formula = "steps * 3(N-1)";
      total = {.sent_bytes = steps * bytes,
               .received_bytes = steps * bytes,
               .sent_messages = steps * 3 * others,
               .received_messages = steps * 3 * others};
    } else if (server_) {
      const Count part = own_count() * element();
      terms.bytes_formula = "steps * W/S * Psi * beta; received: + 8 W";
      terms.messages_formula = "steps * W; received: steps * 2 W";
      total = {.sent_bytes = steps * workers * part,
               .received_bytes = steps * workers * (part + norm),
               .sent_messages = steps * workers,
               .received_messages = steps * 2 * workers};
    } else {
      const Count all = model_.parameters().count() * element();
      terms.bytes_formula = "steps * (Psi * beta + 8 S); received: without 8 S";
      terms.messages_formula = "steps * 2 S; received: steps * S";
      total = {.sent_bytes = steps * (all + norm * servers),
               .received_bytes = steps * all,
               .sent_messages = steps * 2 * servers,
               .received_messages = steps * servers};
    }
    terms.traffic = {{.label = "", .volume = total}};
    return terms;
  }

  void serve_all() {
    const int most_lead = options_.mode == "ssp" ? options_.staleness : Server::unlimited;
    server_->serve(own_steps(), most_lead, [&](const Push& push) { apply(push); });
  }
  void serve_next_to_worker(int threads) {
    omp_set_num_threads(threads);  // OpenMP keeps this setting for each thread that starts work
    try {
      serve_all();
    } catch (...) {
      failure_ = std::current_exception();
      gave_up_ = true;
      server_end().transport().abandon();
    }
  }

  int own_steps() const { return options_.steps - taken_before_; }
  void start_clock() {
    context_.world.transport().align();
    begin_seconds_ = context_.world.transport().now_seconds();
  }

  void apply(const Push& push) {
    const int step = taken_before_ + push.step;
    const Trace::Span span(context_.trace, roles_.two_ends ? server_end().track() : 0,
                           fmt::format("update by worker {}, its step {}, {} ahead, {} behind",
                                       push.worker, step, push.lead, push.delay),
                           "optimizer");
    optimizer_->step(learning_rate(options_, step), clip_factor(options_, push.gradient_norm));
    updates_.push_back({.rank = push.worker,
                        .step = step,
                        .server = roles_.server_of_rank(rank_),
                        .seconds = server_end().transport().now_seconds() - begin_seconds_,
                        .lead = push.lead,
                        .delay = push.delay});
  }

  int taken_before_ = 0;
  double norm_ = 0;
  double begin_seconds_ = 0;
  bool departed_ = false;
  std::vector<UpdateRecord> updates_;
  // The server on a worker's rank, and its error.
  std::exception_ptr failure_;
  std::atomic<bool> gave_up_ = false;
  std::unique_ptr<Concurrency::Task> serving_;
};

// The training loop of one rank.
class OwnSteps {
 public:
  explicit OwnSteps(Training& training)
      : training_(training),
        context_(training.context()),
        server_backend_(make_backend(context_.ledger)),
        member_(context_, training.plan(), training.backend(), *server_backend_),
        checkpoints_(training, member_, scaler_) {}

  void run(const OnStep& on_step) {
    checkpoints_.prepare();
    const std::optional<int> resumed = checkpoints_.resume();
    training_.check_data();
    if (!resumed) member_.load_weights();
    first_step_ = resumed.value_or(0);
    member_.skip_steps(first_step_);
    const StepCounter counter(context_, member_);  // of the whole run: steps have no common end
    try {
      take_steps(on_step);
    } catch (const Error& error) {
      // The others continue only if this rank itself failed.
      if (error.kind() != ErrorKind::lost_rank || !member_.is_dispensable() ||
          error.context().failed_rank != context_.world.rank())
        throw;
      own_.lost.push_back({.rank = context_.world.rank(),
                           .step = first_step_ + static_cast<int>(own_.steps.size()),
                           .why = error.message()});
    }
    if (!own_.lost.empty()) member_.depart();
    const CountedStep counted = counter.counted();
    member_.finish();
    own_.updates = member_.updates();
    collect_own_runs(context_.world, own_, training_.result());
    for (StepRecord& step : training_.result().steps)
      step.tokens_per_second = training_.rate(step.seconds);
    checkpoints_.after_step(training_.plan().options.steps);
    training_.evaluate(member_, training_.plan().options.steps);
    training_.report(member_, {}, own_times_, counted);
  }

 private:
  void take_steps(const OnStep& on_step) {
    const Transport& clock = context_.world.transport();
    const double begin = clock.now_seconds();
    member_.serve();
    for (int step = first_step_; training_.computes() && step < training_.plan().options.steps;
         ++step) {
      StepRecord record = take_step(step);
      check_finite(record, record.loss_scale, context_.world);
      if (context_.world.rank() == 0 && on_step) on_step(record);
      record.seconds = clock.now_seconds() - begin;
      own_.steps.push_back(record);
    }
    member_.finish_serving();
  }

  StepRecord take_step(int step) {
    const Transport& clock = context_.world.transport();
    const double waited = member_.exposed_seconds(), late = late_seconds(context_.world),
                 begin = clock.now_seconds();
    StepRecord record{.step = step};
    {
      const Trace::Span span(context_.trace, 0, fmt::format("step {}", step), "step");
      record.loss = member_.accumulate(training_.micro_batches(step), training_.targets(step), 1);
      if (context_.trace) context_.trace->memory(context_.ledger);
      record.grad_norm = member_.gradient_norm();
      member_.update(0, 1);
      if (Device* const device = context_.ledger.device()) device->synchronize();
    }
    record.seconds = clock.now_seconds() - begin;
    own_times_.add(record.seconds, member_.exposed_seconds() - waited,
                   late_seconds(context_.world) - late);
    return record;
  }

  Training& training_;
  RankContext& context_;
  std::unique_ptr<Backend> server_backend_;
  AsynchronousMember member_;
  LossScaler scaler_{LossScaling::none};
  Checkpoints checkpoints_;
  int first_step_ = 0;
  OwnRun own_;
  OwnTimes own_times_;
};

}  // namespace

void train_asynchronously(Training& training, const OnStep& on_step) {
  OwnSteps(training).run(on_step);
}

}  // namespace lockstep
