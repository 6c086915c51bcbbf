#include "bench/techniques/exchange_ranks.h"

#include <fmt/format.h>

#include <ranges>

#include "collectives/base/error.h"
#include "models/ops/device_backend.h"
#include "models/random.h"
#include "parallel/data/ddp.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/sharded_terms.h"

namespace lockstep {
namespace {

// A rank of the plan, and the strategy that exchanges what it has.
class ExchangedModel {
 public:
  ExchangedModel(RankContext& context, const Plan& plan)
      : context_(context),
        plan_(plan),
        backend_(make_backend(context.ledger)),
        model_(plan, context.world, *backend_, context.ledger),
        data_(make_data_parallel(context, context.world, plan, model_, ParameterSet::dense,
                                 *backend_)) {
    if (has_data(context.ledger)) {
      random_.resize(static_cast<std::size_t>(model_.parameters.count()));
      for (std::size_t i = 0; i < random_.size(); ++i)
        random_[i] =
            static_cast<float>(random_normal(1, context.world.rank(), static_cast<Count>(i)));
    }
    data_->load([this] { fill_values(); });
    data_->wait_for_parameters();
  }

  // Exchanges everything once, and returns the seconds that this rank takes.
  double step() {
    data_->begin(1);
    Transport& clock = context_.world.transport();
    const int all = number_of_parameters();
    if (plan_.zero_stage() == 0) fill_gradients(0, all - 1);
    clock.align();
    const double begin = clock.now_seconds();
    double filling = 0;
    if (plan_.zero_stage() == 0) {
      for (int i = all; i-- > 0;) data_->gradient_ready(i, ParameterSet::dense);
    } else {
      const std::vector<Unit> units = model_.stages.begin()->second.units();
      for (const Unit& unit : units) {
        data_->before_use(unit, UnitUse::forward);
        data_->after_use(unit, UnitUse::forward);
      }
      for (const Unit& unit : units | std::views::reverse) {
        data_->before_use(unit, UnitUse::backward);
        // What a pass would do, and no part of an exchange.
        const double before = clock.now_seconds();
        fill_gradients(unit.first, unit.last);
        filling += clock.now_seconds() - before;
        data_->after_use(unit, UnitUse::backward);
      }
    }
    data_->finish();
    return clock.now_seconds() - begin - filling;
  }

  // What this rank should send in a step.
  Volume expected() const {
    const int rank = context_.world.rank();
    Volume sum;
    for (const Terms::Sent& sent : terms(rank).traffic)
      if (sent.label != norm_label) sum += sent.volume;
    return sum;
  }

 private:
  Terms terms(int rank) const {
    const auto sharding = sharding_of(plan_);
    if (!sharding)
      return ddp_terms(plan_, model_.replicas.dense, model_.parameters, {}, Moment::reduction);
    const ReplicaFacts facts = data_->facts();
    return sharded_exchange_terms(
        plan_, rank, *sharding,
        sharded_units(model_, *sharding, ParameterSet::dense, facts.algorithms), facts,
        Moment::reduction, Moment::norm_of_shards);
  }

  void fill_values() {
    for (int i = 0; i < number_of_parameters(); ++i)
      if (model_.parameters.has_value(i)) fill(i, model_.parameters.value(i));
  }
  void fill_gradients(int first, int last) {
    for (int i = first; i <= last; ++i) fill(i, model_.parameters.gradient(i));
  }
  int number_of_parameters() const { return static_cast<int>(model_.parameters.list().size()); }
  // Random numbers of a parameter.
  void fill(int i, Slice into) {
    if (random_.empty()) return;
    const Parameter& parameter = model_.parameters.list()[static_cast<std::size_t>(i)];
    into.device->convert(
        into, host_slice(std::span(random_).subspan(static_cast<std::size_t>(parameter.offset),
                                                    static_cast<std::size_t>(parameter.count))));
  }

  RankContext& context_;
  const Plan& plan_;
  std::unique_ptr<Backend> backend_;
  RankModel model_;
  std::unique_ptr<DataParallel> data_;
  std::vector<float> random_;
};

void check_traffic(const Plan& plan, int rank, const Volume& measured, const Volume& expected) {
  if (measured != expected)
    throw Error(
        ErrorKind::wrong_result,
        fmt::format("{} on {} ranks: rank {} sends {} bytes in {} messages instead of {} in {}",
                    plan.options.exchange, plan.ranks, rank, measured.sent_bytes,
                    measured.sent_messages, expected.sent_bytes, expected.sent_messages),
        {.hint = "this is a bug in the exchange or in its closed form"});
}

}  // namespace

std::vector<ExchangingRank> exchange_all(const Plan& plan, LaunchOptions world, int times) {
  std::vector<ExchangingRank> ranks(static_cast<std::size_t>(plan.ranks));
  world.ranks = plan.ranks;
  world.fault = {};
  launch(world, [&](RankContext& context) {
    const int number = context.world.rank();
    ExchangingRank& rank = ranks[static_cast<std::size_t>(number)];
    ExchangedModel model(context, plan);
    for (int i = 0; i < times; ++i) {
      context.counters.reset();
      rank.seconds.push_back(model.step());
      rank.sent = context.counters.total();
      check_traffic(plan, number, rank.sent, model.expected());
    }
  });
  return ranks;
}

}  // namespace lockstep
