#include "parallel/data/in_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/broadcast/broadcast.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "parallel/data/bucket_sums.h"
#include "parallel/rank/buffer_pool.h"
#include "parallel/rank/first_weights.h"

namespace lockstep {
namespace {

// Whether backward fills the next unit while one is summed.
bool sums_in_background(const Plan& plan, const ReplicaGroup& replicas) {
  return plan.options.overlap && replicas.copies > 1;
}

// The units whose gradients backward touches in the pass through unit `number`: the head also adds to
// those of the embedding, to which it is tied.
std::vector<std::size_t> touched(std::size_t number, std::size_t units, bool has_ends) {
  if (has_ends && number == 0) return {0, units - 1};
  return {number};
}

// Whether the set has the ends of the model, and not only what some blocks have.
bool has_ends(const RankModel& model, ParameterSet set) { return set == model.base_set(); }

class InBackward final : public DataParallel {
 public:
  InBackward(RankContext& context, Communicator& replicas, const Plan& plan, RankModel& model,
             ParameterSet set, Backend& backend)
      : context_(context),
        replicas_(replicas),
        parameters_(model.of(set)),
        backend_(backend),
        has_ends_(lockstep::has_ends(model, set)),
        queue_(parameters_, unit_buckets(model, set)),
        counted_(parameters_.counted()),
        buffers_(parameters_.dtype(), context.ledger, MemoryUse::gradients),
        units_(queue_.buckets().size()),
        exposed_(context.world) {
    parameters_.allocate_values();
    const OptimizerSettings settings = optimizer_settings(plan.options);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Bucket& unit = queue_.buckets()[u];
      const std::span list(parameters_.list());
      const auto first = static_cast<std::size_t>(unit.first),
                 count = static_cast<std::size_t>(unit.last - unit.first + 1);
      const Slice values = parameters_.values().part(unit.offset, unit.count);
      const Slice none{.count = unit.count, .dtype = values.dtype, .device = values.device};
      for (int i = unit.first; i <= unit.last; ++i) units_[u].parameters.push_back(i);
      units_[u].optimizer = new_optimizer(settings, list.subspan(first, count), unit.offset, values,
                                          none, backend, context.ledger);
    }
    if (replicas.size() == 1) return;
    if (plan.options.overlap) stream_.emplace(replicas, communication_track, "communication");
    communicator().set_label("gradients");
    // Gradients are like values: of the same type, on the same device.
    sums_.emplace(plan, parameters_, queue_.buckets(), communicator(), parameters_.values());
  }

  void take_matrices(const WholeMatrices& matrices) override {
    if (sums_) sums_->take_projectors(matrices);
  }
  void load(const std::function<void()>& read) override {
    if (replicas_.rank() == 0) read();
    // Without data there is nothing to send.
    if (!has_data(context_.ledger)) return;
    replicas_.set_label("weights");
    broadcast(replicas_, parameters_.values());
    replicas_.set_label("gradients");
  }

  void step_in_backward(const StepUnit& step_unit) override { take_step_ = step_unit; }
  void begin(double) override {
    square_ = 0;
    queue_.begin();
  }
  void before_use(const Unit& unit, UnitUse use) override {
    if (use != UnitUse::backward) return;
    const auto& units = queue_.buckets();
    const auto number = static_cast<std::size_t>(
        std::ranges::find(units, unit.first, &Bucket::first) - units.begin());
    for (const std::size_t u : touched(number, units.size(), has_ends_)) take_gradients(u);
  }
  void gradient_ready(int parameter, ParameterSet) override {
    for (const std::size_t unit : queue_.ready(parameter)) {
      // At most one unit is being summed while the next one gets its gradients.
      finish();
      if (stream_)
        in_flight_ = {unit,
                      stream_->enqueue([this, unit](Communicator& comm) { sum(comm, unit); })};
      else
        sum_and_step(unit);
    }
  }
  void finish() override {
    if (!in_flight_) return;
    {
      const Trace::Span span(context_.trace, 0, "wait for gradients", "wait");
      exposed_.time([&] { in_flight_->handle.wait(); });
    }
    step_unit(in_flight_->unit);
    in_flight_.reset();
  }

  // Of units in backward, until they have stepped.
  std::vector<Slice> own_gradients(const std::vector<Range>& ranges) override {
    std::vector<Slice> parts;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].gradients.count() == 0) continue;
      const auto [first, last, offset, count] = queue_.buckets()[u];
      for (const Range& range : common(ranges, {{offset, count}}))
        parts.push_back(units_[u].gradients.slice().part(range.first - offset, range.count));
    }
    return parts;
  }
  double squared_norm() override { return square_; }
  // All units have stepped in backward.
  void step(double, double) override {}

  TrainingState state() override {
    TrainingState state{
        .parameters = &parameters_, .copies = replicas_.size(), .copy = replicas_.rank()};
    for (const UnitState& unit : units_) state.optimizers.push_back(unit.optimizer.get());
    if (sums_) state.add_own("kept", sums_->kept());
    return state;
  }
  void take_restored() override { steps_before_ = steps(); }
  FlatBuffer flat(Gathered what) override { return {flat_of(parameters_, what)}; }

  double waiting_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    return stream_ ? stream_->busy_seconds() : exposed_.seconds();
  }
  ReplicaFacts facts() const override {
    ReplicaFacts facts{.ranks_per_node = replicas_.ranks_per_node(),
                       .steps = ReplicaFacts::Steps{steps_before_, steps()}};
    if (sums_) facts.algorithms = sums_->algorithms();
    return facts;
  }

 private:
  static constexpr int communication_track = 1;
  struct UnitState {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<int> parameters = {};
    Tensor gradients = {};  // while they have memory
  };
  struct InFlight {
    std::size_t unit;
    Stream::Handle handle;
  };

  Communicator& communicator() { return stream_ ? stream_->communicator() : replicas_; }
  std::int64_t steps() const { return units_.empty() ? 0 : units_.front().optimizer->steps(); }

  void take_gradients(std::size_t number) {
    UnitState& unit = units_[number];
    if (unit.gradients.count() > 0) return;
    unit.gradients = buffers_.take(queue_.buckets()[number].count);
    unit.gradients.slice().device->zero(unit.gradients.slice());
    place_gradients(number, unit.gradients.slice());
  }
  void place_gradients(std::size_t number, Slice all) {
    const Bucket& unit = queue_.buckets()[number];
    for (int i = unit.first; i <= unit.last; ++i) {
      const Parameter& parameter = parameters_.list()[static_cast<std::size_t>(i)];
      parameters_.place_gradient(
          i, all.device ? all.part(parameter.offset - unit.offset, parameter.count) : Slice{});
    }
  }

  void sum(Communicator& comm, std::size_t unit) {
    sums_->run(comm, unit, units_[unit].gradients.slice(), units_[unit].optimizer->steps());
  }
  void sum_and_step(std::size_t unit) {
    if (sums_) exposed_.time([&] { sum(replicas_, unit); });
    step_unit(unit);
  }
  void step_unit(std::size_t number) {
    const Bucket& bucket = queue_.buckets()[number];
    UnitState& unit = units_[number];
    const Trace::Span span(context_.trace, 0, "optimizer", "optimizer");
    unit.optimizer->take_gradients(unit.gradients.slice());
    take_step_(*unit.optimizer, unit.parameters);
    // Its step has completed gradients that ranks along tp share, and leaves them as they are.
    for (const Slice& part : own_gradients(common(counted_, {{bucket.offset, bucket.count}})))
      square_ += backend_.squared_norm(part);
    place_gradients(number, {});
    buffers_.give(std::exchange(unit.gradients, {}));
  }

  RankContext& context_;
  Communicator& replicas_;
  Parameters& parameters_;
  Backend& backend_;
  bool has_ends_;
  BucketQueue queue_;  // of the units
  const std::vector<Range> counted_;
  BufferPool buffers_;
  std::vector<UnitState> units_;
  StepUnit take_step_;
  double square_ = 0;               // of the gradients in this step
  std::int64_t steps_before_ = 0;   // this run
  std::optional<BucketSums> sums_;  // none without other replicas
  Stopwatch exposed_;
  std::optional<InFlight> in_flight_;
  std::optional<Stream> stream_;
};

}  // namespace

std::unique_ptr<DataParallel> make_in_backward(RankContext& context, Communicator& replicas,
                                               const Plan& plan, RankModel& model, ParameterSet set,
                                               Backend& backend) {
  return std::make_unique<InBackward>(context, replicas, plan, model, set, backend);
}

std::vector<Bucket> unit_buckets(const RankModel& model, ParameterSet set) {
  std::vector<Bucket> buckets;
  const std::vector<Parameter>& list = model.of(set).list();
  for (const auto& [number, stage] : model.stages)
    for (const Unit& unit : stage.units()) {
      if (unit.set != set) continue;
      const Parameter& first = list[static_cast<std::size_t>(unit.first)];
      const Parameter& last = list[static_cast<std::size_t>(unit.last)];
      buckets.push_back({.first = unit.first,
                         .last = unit.last,
                         .offset = first.offset,
                         .count = last.offset + last.count - first.offset});
    }
  std::ranges::reverse(buckets);
  return buckets;
}

Terms in_backward_terms(const Plan& plan, const RankModel& model, ParameterSet set,
                        const ReplicaFacts& facts, Moment moment) {
  Terms terms{.part = PlanPart::gradients};
  const ReplicaGroup& replicas = model.replicas[set];
  if (replicas.copies > 1)
    add_bucket_sums(terms, plan, replicas, model.of(set), facts,
                    use_in_every_step(plan, unit_buckets(model, set), facts), moment);
  return terms;
}

Terms::Held gradients_in_backward(const Plan& plan, const RankModel& model, ParameterSet set) {
  const std::vector<Bucket> units = unit_buckets(model, set);
  const bool ends = has_ends(model, set), waits = sums_in_background(plan, model.replicas[set]);
  std::vector<bool> has_gradients(units.size());
  PoolPeak buffers;
  Count summed = 0;  // of the unit in the background
  const auto step = [&](Count count) {
    if (count > 0) buffers.give(count);
  };
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const std::size_t t : touched(u, units.size(), ends))
      if (!has_gradients[t]) has_gradients[t] = true, buffers.take(units[t].count);
    step(std::exchange(summed, waits ? units[u].count : 0));
    if (!waits) step(units[u].count);
  }
  const std::size_t blocks = units.size() - (ends ? 2 : 0);
  return {.use = MemoryUse::gradients,
          .bytes = buffers.elements() * element_bytes(plan.options.dtype),
          .formula = fmt::format("({}{}largest of {} blocks) * beta", ends ? "Psi_ends + " : "",
                                 waits && blocks > 1 ? "2 * " : "", blocks)};
}

}  // namespace lockstep
