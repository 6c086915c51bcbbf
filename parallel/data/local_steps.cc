#include "parallel/data/local_steps.h"

#include <fmt/format.h>

#include <optional>

#include "collectives/broadcast/broadcast.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "parallel/data/bucket_sums.h"
#include "parallel/data/outer_optimizer.h"
#include "parallel/rank/first_weights.h"

namespace lockstep {
namespace {

constexpr const char* outer_label = "outer gradients";

std::vector<Bucket> fragments_of(const Plan& plan, const Parameters& parameters) {
  const int number = plan.options.outer_fragments;
  const Parts parts(parameters.count(), number);
  std::vector<Bucket> fragments;
  // Several fragments end inside parameters, and name none.
  const int last = number == 1 ? static_cast<int>(parameters.list().size()) - 1 : -1;
  for (int f = 0; f < number; ++f)
    fragments.push_back({.first = 0, .last = last, .offset = parts.offset(f), .count = parts[f]});
  return fragments;
}

Matrix as_row(Slice slice) { return {slice, 1, slice.count}; }

class LocalSteps final : public DataParallel {
 public:
  LocalSteps(RankContext& context, Communicator& replicas, const Plan& plan, Parameters& parameters,
             Backend& backend)
      : context_(context),
        replicas_(replicas),
        options_(plan.options),
        parameters_(parameters),
        backend_(backend),
        inner_(new_optimizer(optimizer_settings(options_), allocated(parameters), backend,
                             context.ledger)),
        common_({parameters.count()}, parameters.dtype(), context.ledger, MemoryUse::optimizer),
        fragments_(fragments_of(plan, parameters)),
        exposed_(context.world) {
    // Without a delay, the memory of gradients is free during an exchange.
    if (options_.outer_delay > 0)
      travelling_ = Tensor({fragments_.front().count}, parameters.dtype(), context.ledger,
                           MemoryUse::communication);
    const OptimizerSettings settings = outer_settings(options_);
    for (const Bucket& fragment : fragments_) {
      const Range range{fragment.offset, fragment.count};
      outer_.push_back(std::make_unique<OuterOptimizer>(
          parameters.list(), range.first, differences(fragment), settings, backend,
          resident_states(common(fragment), state_ranges(settings, parameters.list(), range),
                          context.ledger)));
    }
    if (replicas.size() == 1) return;
    if (options_.outer_delay > 0 && options_.overlap) stream_.emplace(replicas, 1, "communication");
    communicator().set_label(outer_label);
    sums_.emplace(plan, parameters, fragments_, communicator(), parameters.gradients());
  }

  void load(const std::function<void()>& read) override {
    if (replicas_.rank() == 0) read();
    if (replicas_.size() > 1 && has_data(context_.ledger)) {
      replicas_.set_label("weights");
      broadcast(replicas_, parameters_.values());
      replicas_.set_label(outer_label);
    }
    common_.slice().device->copy(common_.slice(), parameters_.values());
  }

  void begin(double) override { parameters_.zero_gradients(); }
  void finish() override {}

  std::vector<Slice> own_gradients(const std::vector<Range>& ranges) override {
    std::vector<Slice> parts;
    for (const Range& range : ranges)
      parts.push_back(parameters_.gradients().part(range.first, range.count));
    return parts;
  }
  double squared_norm() override {
    double sum = 0;
    for (const Slice& part : own_gradients(parameters_.counted()))
      sum += backend_.squared_norm(part);
    return sum;
  }

  void step(double learning_rate, double gradient_scale) override {
    inner_->step(learning_rate, gradient_scale);
    const std::int64_t step = inner_->steps();
    for (std::size_t f = 0; f < fragments_.size(); ++f)
      if (options_.outer_delay > 0 && starts(f, step - options_.outer_delay)) take_outer_step(f);
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      if (!starts(f, step)) continue;
      exchange(f);
      if (options_.outer_delay == 0) take_outer_step(f);
    }
    // What a checkpoint resumes from.
    for (const auto& outer : outer_) outer->set_steps(step);
  }
  void wait_for_parameters() override { wait(); }

  std::vector<Optimizer*> optimizers() override { return {inner_.get()}; }
  TrainingState state() override {
    wait();
    TrainingState state{
        .parameters = &parameters_, .copies = replicas_.size(), .copy = replicas_.rank()};
    for (const auto& outer : outer_) state.optimizers.push_back(outer.get());
    std::vector<Slice> inner = {parameters_.values()};
    inner_->visit(StateAccess::read, [&](const StateGroup& group) {
      inner.insert(inner.end(), group.states.begin(), group.states.end());
    });
    state.add_own("inner", inner);
    state.add_own("travelling", {travelling_.slice()});
    if (sums_) state.add_own("kept", sums_->kept());
    return state;
  }
  void take_restored() override {
    inner_->set_steps(outer_.front()->steps());
    steps_before_ = inner_->steps();
  }

  FlatBuffer flat(Gathered what) override {
    return {what == Gathered::values ? common_.slice() : parameters_.gradients()};
  }

  double waiting_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    return stream_ ? stream_->busy_seconds() : exposed_.seconds();
  }
  ReplicaFacts facts() const override {
    ReplicaFacts facts{.ranks_per_node = replicas_.ranks_per_node(),
                       .steps = ReplicaFacts::Steps{steps_before_, inner_->steps()}};
    if (sums_) facts.algorithms = sums_->algorithms();
    return facts;
  }

 private:
  static Parameters& allocated(Parameters& parameters) {
    parameters.allocate();
    return parameters;
  }
  Communicator& communicator() { return stream_ ? stream_->communicator() : replicas_; }
  Slice common(const Bucket& fragment) const {
    return common_.slice().part(fragment.offset, fragment.count);
  }
  Slice values(const Bucket& fragment) const {
    return parameters_.values().part(fragment.offset, fragment.count);
  }
  // The delay is so short that one fragment travels at a time.
  Slice differences(const Bucket& fragment) const {
    return options_.outer_delay > 0 ? travelling_.slice().first(fragment.count)
                                    : parameters_.gradients().part(fragment.offset, fragment.count);
  }
  bool starts(std::size_t fragment, std::int64_t step) const {
    return starts_exchange(options_, static_cast<int>(fragment), step);
  }

  void exchange(std::size_t number) {
    const Bucket& fragment = fragments_[number];
    const Slice own = differences(fragment);
    backend_.axpby(as_row(own), 1, as_row(common(fragment)), -1, as_row(values(fragment)));
    if (!sums_) return;
    const std::int64_t steps = inner_->steps();
    if (stream_)
      in_flight_ = stream_->enqueue(
          [this, number, own, steps](Communicator& comm) { sums_->run(comm, number, own, steps); });
    else
      exposed_.time([&] { sums_->run(replicas_, number, own, steps); });
  }

  void take_outer_step(std::size_t number) {
    wait();
    outer_[number]->step(options_.outer_learning_rate, 1.0 / replicas_.size());
    const Slice own = values(fragments_[number]), all = common(fragments_[number]);
    if (options_.outer_mix == 0) return own.device->copy(own, all);
    backend_.axpby(as_row(own), options_.outer_mix, as_row(own), 1 - options_.outer_mix,
                   as_row(all));
  }

  void wait() {
    if (!in_flight_) return;
    const Trace::Span span(context_.trace, 0, "wait for an outer step", "wait");
    exposed_.time([&] { in_flight_->wait(); });
    in_flight_.reset();
  }

  RankContext& context_;
  Communicator& replicas_;
  const TrainOptions& options_;
  Parameters& parameters_;
  Backend& backend_;
  std::unique_ptr<Optimizer> inner_;
  Tensor common_;
  std::vector<Bucket> fragments_;
  Tensor travelling_;
  std::vector<std::unique_ptr<Optimizer>> outer_;  // by fragment
  std::int64_t steps_before_ = 0;                  // of this run
  std::optional<BucketSums> sums_;                 // none without other replicas
  std::optional<Stream::Handle> in_flight_;
  Stopwatch exposed_;
  std::optional<Stream> stream_;
};

}  // namespace

bool starts_exchange(const TrainOptions& options, int fragment, std::int64_t step) {
  const std::int64_t steps = *options.local_steps;
  return step > 0 && step % steps == fragment * steps / options.outer_fragments;
}

std::unique_ptr<DataParallel> make_local_steps(RankContext& context, Communicator& replicas,
                                               const Plan& plan, Parameters& parameters,
                                               Backend& backend) {
  return std::make_unique<LocalSteps>(context, replicas, plan, parameters, backend);
}

Terms local_steps_terms(const Plan& plan, const ReplicaGroup& replicas,
                        const Parameters& parameters, const ReplicaFacts& facts, Moment moment) {
  const TrainOptions& o = plan.options;
  Terms terms{.part = PlanPart::gradients};
  BucketUse use{.buckets = fragments_of(plan, parameters),
                .overlaps = o.outer_delay > 0 && o.overlap,
                .label = outer_label};
  const Bucket& largest = use.buckets.front();
  if (o.outer_delay > 0)
    terms.hold({.use = MemoryUse::communication,
                .bytes = largest.count * element_bytes(o.dtype),
                .formula = "the fragment that travels"});
  if (replicas.copies == 1) return terms;
  const ReplicaFacts::Steps steps = facts.steps.value_or(ReplicaFacts::Steps{0, *o.local_steps});
  use.have_been_sent = false;
  for (int f = 0; f < o.outer_fragments; ++f) {
    const Bucket& fragment = use.buckets[static_cast<std::size_t>(f)];
    if (starts_exchange(o, f, steps.taken)) use.sent.push_back(fragment);
    for (std::int64_t step = steps.before + 1;
         !use.have_been_sent && step <= std::min(steps.taken, steps.before + *o.local_steps);
         ++step)
      use.have_been_sent = starts_exchange(o, f, step);
  }
  add_bucket_sums(terms, plan, replicas, parameters, facts, use, moment);
  const std::string in_steps =
      o.outer_fragments == 1 ? fmt::format("once in {} steps", *o.local_steps)
                             : fmt::format("with Psi/{} for Psi, {} times in {} steps",
                                           o.outer_fragments, o.outer_fragments, *o.local_steps);
  for (std::string* formula : {&terms.bytes_formula, &terms.messages_formula})
    *formula = use.sent.empty() ? "0 between exchanges" : fmt::format("{} {}", *formula, in_steps);
  return terms;
}

Terms::Held outer_states(const Plan& plan, const Parameters& parameters, const std::string& psi) {
  const OptimizerSettings settings = outer_settings(plan.options);
  const DType dtype = plan.options.dtype;
  const Count count = parameters.count();
  return {.use = MemoryUse::optimizer,
          .bytes = count * element_bytes(dtype) +
                   optimizer_bytes(settings, dtype, parameters.list(), {0, count}),
          .formula = fmt::format("{} * beta for the common weights + {}", psi,
                                 optimizer_formula(settings, dtype, psi))};
}

}  // namespace lockstep
