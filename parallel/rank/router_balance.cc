#include "parallel/rank/router_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/report_label.h"
#include "collectives/gather/gather.h"
#include "parallel/rank/sequence_sharers.h"

namespace lockstep {
namespace {

// Few bytes: the number of messages decides.
constexpr std::string_view balance_algorithm = "recursive_doubling";

Count bytes_of_biases(const std::vector<LayerRouter>& routers) {
  Count bytes = 0;
  for (const LayerRouter& layer : routers) bytes += std::ssize(layer.router->bias());
  return bytes * static_cast<Count>(sizeof(double));
}

}  // namespace

RouterBalance::RouterBalance(std::unique_ptr<Communicator> sharers, Ledger& ledger,
                             const Plan& plan, std::vector<LayerRouter> routers)
    : sharers_(std::move(sharers)), ledger_(ledger), plan_(plan), routers_(std::move(routers)) {
  ledger_.add(MemoryUse::optimizer, bytes_of_biases(routers_));
  if (sharers_) waiting_.emplace(*sharers_);
}

RouterBalance::~RouterBalance() { ledger_.remove(MemoryUse::optimizer, bytes_of_biases(routers_)); }

void RouterBalance::add_up(const RoutingTotals& own) {
  for (const LayerRouter& layer : routers_) {
    const std::vector<Count>& chosen = own.choices.at(layer.layer);
    choices_.insert(choices_.end(), chosen.begin(), chosen.end());
  }
  if (!sharers_ || sharers_->size() == 1) return;
  waiting_->time([&] {
    sharers_->set_label(label);
    all_reduce(*sharers_, host_slice(std::span(choices_)), ReduceOp::sum, balance_algorithm);
  });
}

template <typename Run>
void RouterBalance::for_each_layer(Run run) {
  std::span<const double> next = choices_;
  for (const LayerRouter& layer : routers_) {
    const auto experts = static_cast<std::size_t>(layer.router->config().number);
    run(layer, next.first(experts));
    next = next.subspan(experts);
  }
}

void RouterBalance::before_backward(const RoutingTotals& own) {
  const ExpertConfig& experts = plan_.model.experts;
  const bool is_needed = experts.balance_level == BalanceLevel::global_batch && !routers_.empty();
  if (!is_needed || !choices_.empty()) return;
  add_up(own);
  loss_ = 0;
  for_each_layer([&](const LayerRouter& layer, std::span<const double> choices) {
    loss_ += experts.number * plan_.options.global_batch *
             layer.router->share_choices(choices, own.probabilities.at(layer.layer));
  });
}

void RouterBalance::step(const RoutingTotals& own) {
  if (plan_.model.experts.bias_rate == 0 || routers_.empty()) return;
  if (choices_.empty()) add_up(own);
  for_each_layer([](const LayerRouter& layer, std::span<const double> choices) {
    layer.router->balance(choices);
  });
}

namespace {

// Whether messages before backward can meet the communication memory of backward: that is allocated in the
// first step.
bool meets_memory_of_steps_before(const Plan& plan) {
  return plan.options.steps > 1 && plan.options.resume.empty();
}

// Whether no shards are exchanged in the background while a message before backward travels.
bool is_apart_from_shards(const Plan& plan) {
  return plan.zero_stage() == 0 || !plan.options.overlap;
}

// Ranks that share sequences add up their choices in each layer and micro-batch.
void add_choices_of_sequences(Terms& terms, const Plan& plan, int rank, Count layers) {
  const ExpertConfig& experts = plan.model.experts;
  const std::vector<int> sharers = plan.sequence_group_of_routers(rank);
  const int ranks = static_cast<int>(sharers.size());
  const int place = static_cast<int>(std::ranges::find(sharers, rank) - sharers.begin());
  if (ranks == 1 || experts.balance_level == BalanceLevel::global_batch) return;
  const AllReduceAlgorithm& algorithm =
      find_algorithm(all_reduce_algorithms(), "all_reduce", SequenceSharers::algorithm);
  constexpr Count element = sizeof(double);
  Traffic all;
  Count scratch = 0;
  for (const Count rows : plan.rows(rank)) {
    const Count sequences = rows * plan.length(Axis::cp) / plan.tokens_of_sequence();
    const Count parts = experts.balance_level == BalanceLevel::sequence ? sequences : 1;
    const Problem each{.ranks = ranks, .count = parts * experts.number, .element_bytes = element};
    for (Count layer = 0; layer < layers; ++layer) all += algorithm.traffic(each, place);
    scratch = std::max(scratch, algorithm.scratch(each, place) * element);
  }
  terms.send(SequenceSharers::label, all, element);
  terms.bytes_formula = terms.messages_formula = SequenceSharers::label;
  const bool is_apart = is_apart_from_shards(plan);
  terms.hold({.use = MemoryUse::communication,
              .bytes = scratch,
              .exact = scratch == 0 || (meets_memory_of_steps_before(plan) && is_apart),
              .moment = is_apart ? Moment::choices_of_sequences : Moment::always});
}

}  // namespace

Terms router_balance_terms(const Plan& plan, int rank, Count layers) {
  Terms terms{.part = PlanPart::router_balance};
  const ExpertConfig& experts = plan.model.experts;
  if (!experts.exist() || layers == 0) return terms;
  const Count numbers = layers * experts.number;
  constexpr Count element = sizeof(double);
  if (experts.has_bias())
    terms.hold({.use = MemoryUse::optimizer,
                .bytes = numbers * element,
                .formula = "8 E layers with experts"});
  add_choices_of_sequences(terms, plan, rank, layers);
  const std::vector<int> sharers = plan.router_group(rank);
  const int ranks = static_cast<int>(sharers.size());
  const bool adds_up = experts.bias_rate > 0 || experts.balance_level == BalanceLevel::global_batch;
  if (ranks == 1 || !adds_up) return terms;
  const int place = static_cast<int>(std::ranges::find(sharers, rank) - sharers.begin());
  const AllReduceAlgorithm& algorithm =
      find_algorithm(all_reduce_algorithms(), "all_reduce", balance_algorithm);
  terms.send(RouterBalance::label,
             algorithm.traffic({.ranks = ranks, .count = numbers, .element_bytes = element}, place),
             element, "8 E layers with experts, by recursive doubling");
  terms.bytes_formula +=
      (terms.bytes_formula.empty() ? "" : " + ") + std::string(RouterBalance::label);
  terms.messages_formula = terms.bytes_formula;
  const bool is_before_backward = experts.balance_level == BalanceLevel::global_batch,
             is_apart = !is_before_backward || is_apart_from_shards(plan);
  terms.hold({.use = MemoryUse::communication,
              .bytes = algorithm.scratch({.ranks = ranks, .count = numbers}, place) * element,
              .exact = !is_before_backward || (meets_memory_of_steps_before(plan) && is_apart),
              .moment = is_apart ? Moment::router_balance : Moment::always});
  return terms;
}

void set_biases(const std::vector<LayerRouter>& routers, const RouterBiases& biases) {
  for (const LayerRouter& layer : routers)
    if (const auto bias = biases.find(layer.layer); bias != biases.end())
      layer.router->set_bias(bias->second);
}

RouterBiases all_biases(Communicator& world, const ExpertConfig& experts,
                        const std::vector<LayerRouter>& routers) {
  if (!experts.has_bias()) return {};
  RouterBiases own;
  for (const LayerRouter& layer : routers)
    own[layer.layer].assign(layer.router->bias().begin(), layer.router->bias().end());
  world.set_label(report_label);
  RouterBiases all;
  int rank = 0;
  for (const std::string& text : gather_text(world, json_line(nlohmann::json(own)))) {
    for (const auto& [layer, bias] : parse_json(text, "biases of a rank").get<RouterBiases>())
      if (all.try_emplace(layer, bias).first->second != bias)
        throw Error(ErrorKind::wrong_result,
                    fmt::format("rank {} has another {} than the ranks before it", rank,
                                router_bias_name(layer)),
                    {.rank = rank,
                     .size = world.size(),
                     .hint = "these ranks have counted different choices: this is a bug"});
    ++rank;
  }
  return all;
}

}  // namespace lockstep
