#include "parallel/sharded/sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "models/ops/narrow_types.h"
#include "parallel/rank/norm.h"
#include "parallel/sharded/algorithms.h"
#include "parallel/sharded/gatherer.h"
#include "parallel/sharded/offload.h"
#include "parallel/sharded/reducer.h"

namespace lockstep {
namespace {

constexpr int communication_track = 1;

class Sharded final : public DataParallel {
 public:
  Sharded(RankContext& context, Communicator& data, const Plan& plan, RankModel& model,
          ParameterSet set, Backend& backend)
      : context_(context),
        shards_(data.subgroup(neighbours(data.rank(), model.replicas[set].shards()))),
        between_(data.subgroup(counterparts(data, model.replicas[set].shards()))),
        plan_(plan),
        sharding_(*sharding_of(plan, set)),
        layout_(sharded_units(model, sharding_, set)),
        parameters_(model.of(set)),
        backend_(backend),
        value_buffers_(parameters_.dtype(), context.ledger, MemoryUse::parameters),
        gradient_buffers_(parameters_.dtype(), context.ledger, MemoryUse::gradients),
        exposed_(context.world) {
    if (sharding_.group_ranks > 0)
      group_ = shards_->subgroup(neighbours(shards_->rank(), sharding_.group_ranks));
    choose_algorithms(layout_, plan, {*shards_, group_.get(), *between_});
    const OptimizerSettings settings = optimizer_settings(plan.options);
    if (offloads_states(plan)) offload_.emplace(context, *shards_, plan, layout_, exposed_);
    for (const UnitParameters& unit : layout_.all)
      units_.emplace_back(parameters_, unit, shards_->size(), shards_->rank(), sharding_, settings,
                          backend, context.ledger, offload_ ? &*offload_ : nullptr, units_.size());
    const auto most = std::ranges::max_element(units_, {}, &ShardedUnit::exchanged);
    counted_ =
        own_parts(parameters_, layout_, shards_->size(), shards_->rank(), parameters_.counted());
    for (const auto& [number, stage] : model.stages)
      for (const Unit& unit : stage.units())
        if (unit.set == set) stage_of_[unit.first] = &layout_.stage(number);
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (const int parameter : layout_.all[u].parameters) unit_of_[parameter] = u;
    if (data.size() > 1 && plan.options.overlap)
      stream_.emplace(*shards_, communication_track, "communication");
    gatherer_.emplace(*shards_, group_.get(), plan, sharding_, units_, *most, value_buffers_,
                      offload_ ? &*offload_ : nullptr, stream_ ? &*stream_ : nullptr, exposed_);
    if (sharding_.trains)
      reducer_.emplace(*shards_, *between_, plan, sharding_, *most, gradient_buffers_,
                       stream_ ? &*stream_ : nullptr, exposed_);
  }

  void load(const std::function<void()>& read) override {
    if (!sharding_.shards_parameters()) read();
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (sharding_.shards_parameters())
        units_[u].load(value_buffers_, read,
                       [&](Slice shard) { offload_->write_values(u, shard).wait(); });
      // Offloaded masters are written once before the first step, so that all steps move the same.
      if (offload_ && is_narrow(parameters_.dtype()))
        units_[u].optimizer().visit(StateAccess::change, [](const StateGroup&) {});
    }
  }

  void step_in_backward(const StepUnit& step_unit) override {
    if (!reducer_) return;
    reducer_->step_in_backward([this, step_unit](ShardedUnit& reduced) {
      const Trace::Span span(context_.trace, 0, "optimizer", "optimizer");
      std::size_t number = 0;
      while (&units_[number] != &reduced) ++number;
      step_unit(reduced.optimizer(), layout_.all[number].parameters);
      // Its step has completed gradients that ranks along tp share, and leaves them as they are.
      for (const OwnPart& part : counted_)
        if (part.unit == number) square_ += squared_norm(part);
      gatherer_->gather_updated(number);
    });
  }
  void begin(double) override {
    micro_batch_ = 0;
    square_ = 0;
    for (ShardedUnit& unit : units_) unit.begin();
  }
  void before_use(const Unit& unit, UnitUse use) override {
    const std::size_t number = unit_of_.at(unit.first);
    if (follows_order(use)) {
      if (next_ == order_.size()) begin_order(*stage_of_.at(unit.first), use);
      run_until_use();
      const UnitEvent& event = order_[next_++];
      if (ordered_->place(event.unit) != number || event.use != use)
        throw Error(ErrorKind::wrong_result, "a pass used the model's units out of order",
                    {.hint = "this is a bug in Lockstep; please report it"});
    }
    gatherer_->wait(number);
    const bool adds_gradients = use == UnitUse::backward || use == UnitUse::weight_gradient;
    if (adds_gradients && sharding_.trains && units_[number].gradients().count == 0)
      units_[number].take_gradients(gradient_buffers_);
    if (follows_order(use) && context_.trace)
      use_.emplace(context_.trace, 0, traced(order_[next_ - 1]), "unit");
  }
  void after_use(const Unit&, UnitUse use) override {
    use_.reset();
    if (!follows_order(use)) return;
    run_until_use();
    if (next_ == order_.size() && use == UnitUse::backward) ++micro_batch_;
  }

  void take(const Action& action) override {
    if (!sharding_.by_stage) return;
    const RankUnits::Stage& stage = layout_.stage(action.stage);
    for (std::size_t u = stage.first; u < stage.end(); ++u) {
      if (action.pass == Pass::unshard && sharding_.shards_parameters()) gatherer_->gather(u);
      if (action.pass == Pass::reshard && sharding_.shards_parameters()) gatherer_->free(u);
      if (action.pass == Pass::reduce_gradients && !layout_.all[u].tied_copy) reduce(u);
    }
  }
  // A tied copy is announced when it has the sum of both copies' gradients.
  void gradient_ready(int parameter, ParameterSet) override {
    const std::size_t unit = unit_of_.at(parameter);
    if (layout_.all[unit].tied_copy == parameter) reduce(unit);
  }

  void finish() override {
    const Trace::Span span(context_.trace, 0, "wait for gradients", "wait");
    if (reducer_) reducer_->finish();
    // The sums of the norm come next: together with a gather they would need more scratch.
    if (sharding_.steps_in_backward && !sharding_.shards_parameters()) gatherer_->wait_for_all();
  }

  std::vector<Slice> own_gradients(const std::vector<Range>& ranges) override {
    std::vector<Slice> slices;
    if (!sharding_.trains) return slices;
    for (const OwnPart& part :
         own_parts(parameters_, layout_, shards_->size(), shards_->rank(), ranges))
      slices.push_back(units_[part.unit].own_gradients().part(part.range.first, part.range.count));
    return slices;
  }
  double squared_norm() override {
    if (!sharding_.trains) return 0;
    double sum = square_;
    if (!sharding_.steps_in_backward)
      for (const OwnPart& part : counted_) sum += squared_norm(part);
    exposed_.time([&] { sum_of_norm(*shards_, sum); });
    return sum;
  }

  void step(double learning_rate, double gradient_scale) override {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      units_[u].optimizer().step(learning_rate, gradient_scale);
      gatherer_->gather_updated(u);
    }
  }
  void wait_for_parameters() override { gatherer_->wait_for_all(); }

  TrainingState state() override {
    TrainingState state{
        .parameters = &parameters_, .copies = between_->size(), .copy = between_->rank()};
    for (ShardedUnit& unit : units_)
      if (sharding_.trains) state.optimizers.push_back(&unit.optimizer());
    return state;
  }
  void take_restored() override {
    for (std::size_t u = 0; u < units_.size(); ++u) gatherer_->gather_updated(u);
  }

  FlatBuffer flat(Gathered what) override {
    shards_->set_label("weights");
    Tensor memory({parameters_.count()}, parameters_.dtype(), context_.ledger,
                  MemoryUse::workspace);
    const Slice all = memory.slice();
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const ShardedUnit& unit = units_[u];
      const Tensor exchanged({unit.exchanged()}, parameters_.dtype(), context_.ledger,
                             MemoryUse::workspace);
      Slice own = what == Gathered::values ? unit.own_values() : unit.own_gradients();
      if (what == Gathered::values && offload_ && offload_->holds_parameters()) {
        own = unit.landing(exchanged.slice());
        offload_->read_values(u, own).wait();
      }
      unit.gather_into(*shards_, own, exchanged.slice(), all);
    }
    return {all, std::move(memory)};
  }

  ReplicaFacts facts() const override {
    return {.algorithms = listed_algorithms(layout_),
            .ranks_per_node = shards_->ranks_per_node(),
            .counterparts_per_node = between_->ranks_per_node()};
  }
  TierTraffic tier_traffic() const override {
    return offload_ ? offload_->traffic() : TierTraffic{};
  }
  double waiting_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    const double between = reducer_ ? reducer_->busy_seconds() : 0;
    return stream_ ? stream_->busy_seconds() + between : exposed_.seconds();
  }

 private:
  // Returns the group of so many neighbouring ranks that contains this rank.
  static std::vector<int> neighbours(int rank, int number) {
    std::vector<int> ranks(static_cast<std::size_t>(number));
    std::iota(ranks.begin(), ranks.end(), rank / number * number);
    return ranks;
  }
  // Returns the ranks with the same shards in all replicas of them.
  static std::vector<int> counterparts(const Communicator& data, int shards) {
    std::vector<int> ranks;
    for (int rank = data.rank() % shards; rank < data.size(); rank += shards) ranks.push_back(rank);
    return ranks;
  }

  double squared_norm(const OwnPart& part) {
    return backend_.squared_norm(
        units_[part.unit].own_gradients().part(part.range.first, part.range.count));
  }

  // A pipeline's schedule says when its stages are unsharded; validation has no schedule.
  bool follows_order(UnitUse use) const {
    return !sharding_.by_stage || use == UnitUse::evaluation;
  }
  void begin_order(const RankUnits::Stage& stage, UnitUse use) {
    ordered_ = &stage;
    order_ = use == UnitUse::evaluation
                 ? evaluation_order(stage.shape, sharding_.order)
                 : training_order(stage.shape, sharding_.order,
                                  sharding_.reduces(micro_batch_, plan_.options.micro_batches));
    next_ = 0;
  }

  // Returns the name of an event in the trace: "AG0"; "R" for a pass through the root, or its end.
  std::string traced(const UnitEvent& event) const {
    if (!context_.trace) return {};
    const std::string text = text_of(std::vector{event});
    return text.empty() ? "R" : text;
  }

  // Takes the events up to the next pass through a unit.
  void run_until_use() {
    for (; next_ < order_.size() && order_[next_].kind != UnitEvent::Kind::use; ++next_) {
      const Trace::Span span(context_.trace, 0, traced(order_[next_]), "unit");
      const std::size_t unit = ordered_->place(order_[next_].unit);
      const UnitEvent& event = order_[next_];
      if (event.kind == UnitEvent::Kind::gather) gatherer_->gather(unit, event.in_group);
      if (event.kind == UnitEvent::Kind::free) gatherer_->free(unit, event.in_group);
      if (event.kind == UnitEvent::Kind::reduce) reduce(unit);
    }
  }

  void reduce(std::size_t number) {
    if (!sharding_.trains) return;
    reducer_->reduce(units_[number],
                     sharding_.by_stage || micro_batch_ + 1 == plan_.options.micro_batches);
  }

  RankContext& context_;
  std::unique_ptr<Communicator> shards_, between_;
  std::unique_ptr<Communicator> group_;  // keeps shards between forward and backward; may be null
  const Plan& plan_;
  const Sharding sharding_;
  RankUnits layout_;
  Parameters& parameters_;
  Backend& backend_;
  std::deque<ShardedUnit> units_;
  std::map<int, std::size_t> unit_of_;               // by parameter
  std::map<int, const RankUnits::Stage*> stage_of_;  // by a unit's first parameter
  std::vector<OwnPart> counted_;                     // own gradients that the norm counts
  double square_ = 0;                                // of those of units that have stepped
  BufferPool value_buffers_, gradient_buffers_;
  int micro_batch_ = 0;                        // of the step
  const RankUnits::Stage* ordered_ = nullptr;  // the stage that follows the order
  std::vector<UnitEvent> order_;
  std::size_t next_ = 0;            // in the order
  std::optional<Trace::Span> use_;  // the pass through a unit, in the trace
  Stopwatch exposed_;
  std::optional<Offload> offload_;
  std::optional<ParameterGatherer> gatherer_;
  std::optional<GradientReducer> reducer_;  // none for frozen parameters
  std::optional<Stream> stream_;            // ends before all that its work uses
};

}  // namespace

std::unique_ptr<DataParallel> make_sharded(RankContext& context, Communicator& data,
                                           const Plan& plan, RankModel& model, ParameterSet set,
                                           Backend& backend) {
  return std::make_unique<Sharded>(context, data, plan, model, set, backend);
}

}  // namespace lockstep
