#include "parallel/rank/router_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/report_label.h"
#include "collectives/gather/gather.h"

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

RouterBalance::RouterBalance(Communicator* sharers, Ledger& ledger,
                             std::vector<LayerRouter> routers)
    : sharers_(sharers), ledger_(ledger), routers_(std::move(routers)) {
  ledger_.add(MemoryUse::optimizer, bytes_of_biases(routers_));
  if (sharers_) waiting_.emplace(*sharers_);
}

RouterBalance::~RouterBalance() { ledger_.remove(MemoryUse::optimizer, bytes_of_biases(routers_)); }

bool RouterBalance::changes_biases() const {
  return !routers_.empty() && routers_.front().router->config().bias_rate > 0;
}

void RouterBalance::step(const RoutingTotals& own) {
  if (!changes_biases()) return;
  std::vector<double> choices;
  for (const LayerRouter& layer : routers_) {
    const auto counted = own.choices.find(layer.layer);
    if (counted != own.choices.end())
      choices.insert(choices.end(), counted->second.begin(), counted->second.end());
    else  // no token was on this rank
      choices.resize(choices.size() + layer.router->bias().size());
  }
  if (sharers_ && sharers_->size() > 1)
    waiting_->time([&] {
      sharers_->set_label(label);
      all_reduce(*sharers_, host_slice(std::span(choices)), ReduceOp::sum, balance_algorithm);
    });
  std::span<const double> next = choices;
  for (const LayerRouter& layer : routers_) {
    const std::size_t experts = layer.router->bias().size();
    layer.router->balance(next.first(experts));
    next = next.subspan(experts);
  }
}

Terms router_balance_terms(const Plan& plan, int rank, Count layers) {
  Terms terms{.part = PlanPart::router_balance};
  const ExpertConfig& experts = plan.model.experts;
  if (!experts.has_bias() || layers == 0) return terms;
  const Count numbers = layers * experts.number;
  constexpr Count element = sizeof(double);
  terms.hold({.use = MemoryUse::optimizer,
              .bytes = numbers * element,
              .formula = "8 E layers with experts"});
  const std::vector<int> sharers = plan.replica_group(rank, ParameterSet::dense);
  const int ranks = static_cast<int>(sharers.size());
  if (ranks == 1 || experts.bias_rate == 0) return terms;
  const int place = static_cast<int>(std::ranges::find(sharers, rank) - sharers.begin());
  const AllReduceAlgorithm& algorithm =
      find_algorithm(all_reduce_algorithms(), "all_reduce", balance_algorithm);
  terms.send(RouterBalance::label,
             algorithm.traffic({.ranks = ranks, .count = numbers, .element_bytes = element}, place),
             element, "8 E layers with experts, by recursive doubling");
  terms.bytes_formula = terms.messages_formula = RouterBalance::label;
  terms.hold({.use = MemoryUse::communication,
              .bytes = algorithm.scratch({.ranks = ranks, .count = numbers}, place) * element,
              .moment = Moment::router_balance});
  return terms;
}

void set_biases(const std::vector<LayerRouter>& routers, const RouterBiases& biases) {
  for (const LayerRouter& layer : routers)
    if (const auto bias = biases.find(layer.layer); bias != biases.end())
      layer.router->set_bias(bias->second);
}

RouterBiases all_biases(Communicator& world, const std::vector<LayerRouter>& routers) {
  RouterBiases own;
  for (const LayerRouter& layer : routers)
    if (!layer.router->bias().empty())
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
