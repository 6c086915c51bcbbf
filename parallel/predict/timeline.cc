#include "parallel/predict/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/device.h"
#include "parallel/plan/algorithms.h"
#include "parallel/predict/workspace.h"
#include "parallel/rank/gradient_exchange.h"
#include "parallel/rank/norm.h"
#include "parallel/sharded/unit.h"

namespace lockstep {
namespace {

// A rank's thread, and the stream that exchanges for it.
class TwoThreads {
 public:
  explicit TwoThreads(bool overlaps) : overlaps_(overlaps) {}

  void compute(double seconds) { now_ += seconds; }
  // Returns the time at which it is done.
  double exchange(double seconds) {
    stream_ = std::max(now_, stream_) + seconds;
    if (!overlaps_) wait(stream_);
    return stream_;
  }
  void wait(double until) {
    waiting_ += std::max(0.0, until - now_);
    now_ = std::max(now_, until);
  }
  StepTimes times() const { return {.whole = now_, .waiting = waiting_}; }

 private:
  bool overlaps_;
  double now_ = 0, stream_ = 0, waiting_ = 0;
};

// Returns the seconds of a single event: a pass or an exchange.
using EventSeconds = std::function<double(const UnitEvent&)>;

void take_events(TwoThreads& threads, const std::vector<UnitEvent>& order,
                 const EventSeconds& seconds, const Sharding& sharding) {
  std::map<int, double> gathered;  // when, by unit
  double reduced = 0;
  for (const UnitEvent& event : order) switch (event.kind) {
      case UnitEvent::Kind::gather:
        gathered[event.unit] = threads.exchange(seconds(event));
        break;
      case UnitEvent::Kind::use:
        threads.wait(gathered[event.unit]);
        threads.compute(seconds(event));
        break;
      case UnitEvent::Kind::free:
        break;
      case UnitEvent::Kind::reduce:
        if (sharding.shards_gradients()) threads.wait(reduced);
        reduced = threads.exchange(seconds(event));
        break;
    }
  threads.wait(reduced);
}

// Adds up what a backend's operations take between before_use() and after_use().
class PassSeconds final : public PassObserver {
 public:
  explicit PassSeconds(const RooflineBackend& backend) : backend_(backend) {}
  void before_use(const Unit&, UnitUse) override { begin_ = backend_.seconds(); }
  void after_use(const Unit&, UnitUse) override {
    of_passes_.push_back(backend_.seconds() - begin_);
  }
  const std::vector<double>& of_passes() const { return of_passes_; }

 private:
  const RooflineBackend& backend_;
  double begin_ = 0;
  std::vector<double> of_passes_;
};

void check_shape(const Plan& plan, const std::optional<Sharding>& sharding) {
  require(sharding && !sharding->by_stage && plan.ranks == plan.shards() &&
              plan.length(Axis::cp) == 1 && sharding->group_ranks == 0 &&
              plan.options.offload == "none" && !plan.compresses_gradients() &&
              !plan.compresses_parameters(),
          "a predicted timeline of this plan",
          "use zero with --stage 1 to 3 or fsdp, without --replicas, --offload, groups, "
          "--exchange and --gather");
  const UnitAlgorithms& named = sharding->algorithms;
  for (const auto& [collective, name] :
       {std::pair(Operation::all_gather, named.gather), {sharding->reduction(), named.reduce}}) {
    const AnyAlgorithm* const algorithm = closed_forms(collective, name);
    require(algorithm && algorithm->seconds,
            fmt::format("a predicted timeline with --algorithm {}", name),
            "name an algorithm whose time has a closed form: neither auto nor vendor");
  }
}

// A single rank with kernels that only advance the clock.
class Rank {
 public:
  Rank(const Plan& plan, int number, const Sharding& sharding, const Roofline& roofline)
      : plan_(plan), number_(number), sharding_(sharding), backend_(roofline, [](double) {}) {
    ledger_.place_on(none_device());
    model_.emplace(plan, number, backend_, ledger_);
    units_ = sharded_units(*model_, sharding);
    model_->parameters.allocate();
  }

  const RankUnits& units() const { return units_; }

  // Returns the seconds of all passes of a step, in order.
  std::vector<double> passes() {
    GptStage& stage = model_->stages.begin()->second;
    PassSeconds seconds(backend_);
    stage.observe(seconds);
    for (const Batch& batch : dry_batches(plan_, number_, 0)) {
      StageStash stash;
      stage.forward(stash, rows_in_training(batch), batch.inputs, {}, {}, Targets{batch.targets});
      stage.backward(stash, batch.inputs, {}, {});
    }
    return seconds.of_passes();
  }

  double norm() {
    const double begin = backend_.seconds();
    for (const OwnPart& part : own_parts(model_->parameters, units_, plan_.shards(),
                                         plan_.shard(number_), model_->parameters.counted()))
      backend_.squared_norm(model_->parameters.gradients().first(part.range.count));
    return backend_.seconds() - begin;
  }

  double update(const UnitParameters& unit) {
    const double begin = backend_.seconds();
    ShardedUnit(model_->parameters, unit, plan_.shards(), plan_.shard(number_), sharding_,
                optimizer_settings(plan_.options), backend_, ledger_)
        .optimizer()
        .step(0, 1);
    return backend_.seconds() - begin;
  }

 private:
  const Plan& plan_;
  int number_;
  const Sharding& sharding_;
  RooflineBackend backend_;
  Ledger ledger_;
  std::optional<RankModel> model_;
  RankUnits units_;
};

}  // namespace

StepTimes predicted_step(const Plan& plan, int rank, const Roofline& roofline,
                         const LinkModel& links) {
  const std::optional<Sharding> sharding = sharding_of(plan);
  check_shape(plan, sharding);
  Rank alone(plan, rank, *sharding, roofline);
  const RankUnits& units = alone.units();
  const int ranks = plan.shards();
  const UnitAlgorithms& named = sharding->algorithms;
  const auto exchange = [&](Operation collective, const std::string& name, std::size_t unit,
                            Count element) {
    if (ranks == 1) return 0.0;
    const Problem problem{.ranks = ranks,
                          .count = units.all[unit].layout(ranks).exchanged(),
                          .element_bytes = element};
    return closed_forms(collective, name)->seconds(problem, links);
  };
  const auto gather = [&](std::size_t unit) {
    return exchange(Operation::all_gather, named.gather, unit, element_bytes(plan.options.dtype));
  };
  const auto reduce = [&](std::size_t unit) {
    return exchange(sharding->reduction(), named.reduce, unit,
                    GradientExchange::element_bytes(plan));
  };

  const std::vector<double> passes = alone.passes();
  std::size_t pass = 0;
  const EventSeconds seconds = [&](const UnitEvent& event) {
    if (event.kind == UnitEvent::Kind::use) return passes.at(pass++);
    const std::size_t unit = units.stages.front().place(event.unit);
    return event.kind == UnitEvent::Kind::gather ? gather(unit) : reduce(unit);
  };
  TwoThreads threads(plan.options.overlap && ranks > 1);
  take_events(threads, step_order(plan, *sharding, units), seconds, *sharding);
  threads.compute(alone.norm());
  if (ranks > 1) {
    const auto& norm = find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm);
    const Problem problem{.ranks = ranks, .count = 1, .element_bytes = sizeof(double)};
    threads.compute(norm.seconds(problem, links));
  }
  double last = 0;
  for (std::size_t u = 0; u < units.all.size(); ++u) {
    threads.compute(alone.update(units.all[u]));
    if (!sharding->shards_parameters()) last = threads.exchange(gather(u));
  }
  threads.wait(last);
  return threads.times();
}

}  // namespace lockstep
