#include "parallel/expert/weighted_experts.h"

#include <numeric>

namespace lockstep {
namespace {

std::vector<std::int32_t> in_order(Count count) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

// Rows come from all ranks that divide experts, for each of the ranks that split them. A row has
// `of_row` experts at most.
struct WeightedExperts::Routes {
  std::vector<Count> of_parts;  // rows that the ranks that split experts have got
  Range own;                    // this rank's among them
  Count of_row = 1;
  std::vector<Count> of_expert;         // rows of each expert
  std::vector<std::int32_t> by_expert;  // of these rows, by expert, the rows that have arrived
  std::vector<double> weights;          // of the same
  std::vector<std::int32_t> places;     // [arrived rows, of_row], the row of the expert; -1: none
  // This rank's own rows, among those by expert.
  std::vector<RowsOfExpert> own_by_expert;
  Count arrived() const { return std::reduce(of_parts.begin(), of_parts.end()); }
  Count rows() const { return std::ssize(by_expert); }
  // Of [arrived rows, of_row], this rank's.
  template <typename Numbers>
  auto own_of(const Numbers& numbers) const {
    return std::span(numbers).subspan(static_cast<std::size_t>(own.first * of_row),
                                      static_cast<std::size_t>(own.count * of_row));
  }
};

WeightedExperts::Routes WeightedExperts::routes_of(const Routing& routing) const {
  const ExpertSplit& split = ranks_.split();
  const auto ranks = static_cast<std::size_t>(split.ranks);
  const auto parts = static_cast<std::size_t>(split.gathered_ranks());
  const auto experts = static_cast<std::size_t>(split.experts(config().number));
  Routes routes{.of_parts = rows_of_parts(routing, split),
                .own = {},
                .of_row = ranks_.experts_per_row(),
                .of_expert = std::vector<Count>(experts),
                .by_expert = {},
                .weights = {},
                .places = std::vector<std::int32_t>(routing.arriving_experts.size(), -1),
                .own_by_expert = {}};
  const auto own_part = static_cast<std::size_t>(parts > 1 ? split.tensor_rank : 0);
  routes.own = {std::reduce(routes.of_parts.begin(), routes.of_parts.begin() + own_part),
                routes.of_parts[own_part]};

  // Calls run(part, source, place) for the experts of all rows, as they have arrived.
  const auto for_each_place = [&](auto run) {
    std::size_t place = 0;
    for (std::size_t part = 0; part < parts; ++part)
      for (std::size_t source = 0; source < ranks; ++source)
        for (const std::size_t end =
                 place + static_cast<std::size_t>(routing.received_of_parts[part * ranks + source] *
                                                  routes.of_row);
             place < end; ++place)
          if (routing.arriving_experts[place] >= 0) run(part, source, place);
  };
  const auto of = [&](std::size_t expert, std::size_t source, std::size_t part) {
    return (expert * ranks + source) * parts + part;
  };
  std::vector<Count> counts(experts * ranks * parts), next = counts;
  for_each_place([&](std::size_t part, std::size_t source, std::size_t place) {
    ++counts[of(routing.arriving_experts[place], source, part)];
  });
  // An expert's rows lie in the order of all ranks' tokens.
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), Count{0});
  for (std::size_t expert = 0; expert < experts; ++expert)
    for (std::size_t source = 0; source < ranks; ++source) {
      const std::size_t own = of(expert, source, own_part);
      routes.own_by_expert.push_back({.expert = expert, .first = next[own], .count = counts[own]});
      for (std::size_t part = 0; part < parts; ++part)
        routes.of_expert[expert] += counts[of(expert, source, part)];
    }
  const Count rows = std::reduce(counts.begin(), counts.end());
  routes.by_expert.resize(static_cast<std::size_t>(rows));
  routes.weights.resize(static_cast<std::size_t>(rows));
  for_each_place([&](std::size_t part, std::size_t source, std::size_t place) {
    const Count row = next[of(routing.arriving_experts[place], source, part)]++;
    routes.places[place] = static_cast<std::int32_t>(row);
    routes.by_expert[row] = static_cast<std::int32_t>(static_cast<Count>(place) / routes.of_row);
    routes.weights[row] = routing.arriving_weights[place];
  });
  return routes;
}

Slice WeightedExperts::dispatch(Backend& backend, Labels labels, Slice here, Slice leaving,
                                const Routing& routing, const Routes& routes) const {
  const Slice by_rank = rows(Use::by_rank, ranks_.most_received(), routes.arrived());
  const Slice own = by_rank.part(routes.own.first * width(), routes.own.count * width());
  ranks_.announce(by_rank, leaving);
  ranks_.dispatch(labels.between_experts, own, leaving, routing, width());
  ranks_.parts().gather(labels.of_split_experts, by_rank, routes.of_parts);
  if (routes.rows() > 0)
    backend.gather_rows(here.first(routes.rows() * width()), by_rank, routes.by_expert, {});
  return own;
}

Slice WeightedExperts::add_up(Backend& backend, const char* label, Slice here, const Routes& routes,
                              std::span<const double> weights) const {
  const Slice by_rank = rows(Use::by_rank, ranks_.most_received(), routes.arrived());
  if (routes.arrived() > 0)
    backend.combine_rows(by_rank, {}, here, routes.places, weights, routes.arrived());
  ranks_.parts().sum(label, by_rank, routes.of_parts);
  return by_rank.part(routes.own.first * width(), routes.own.count * width());
}

void WeightedExperts::mix(Backend& backend, Slice out, Slice base, Slice x, LayerStash& kept,
                          Routing& routing, const Rows& tokens, Ledger& ledger,
                          const Meanwhile& meanwhile) const {
  if (!tokens.again) ranks_.exchange_counts(routing);
  const SentRows sent = ranks_.sent(routing);
  if (!tokens.again) ranks_.exchange_weights(sent, statistics_type(parameters().dtype()), routing);
  const Routes routes = routes_of(routing);
  if (tokens.in_training() && !tokens.again) {
    DispatchedRows dispatched = dispatched_rows(routing);
    dispatched.of_parts = routes.of_parts;
    ranks_.record(std::move(dispatched), routes.rows());
  }
  auto& a = kept.own<Kept>();
  const Slice leaving = rows(Use::leaving, most_sent(routing), std::ssize(sent.tokens));
  backend.gather_rows(leaving, x, sent.tokens, {});
  const Meanwhile rest = ranks_.run_during_dispatch(meanwhile);
  dispatch(backend, {ExpertRanks::dispatch_label, ExpertRanks::split_forward_label},
           make(a.rows.input, most_rows_here(), width(), ledger), leaving, routing, routes);
  const Slice made = rows(Use::by_expert, most_rows_here(), routes.rows());
  own_forward(backend, made, a.rows, routes.of_expert, most_rows_here(), ledger);
  const Slice biases = make(a.biases, std::ssize(routes.of_expert), width(), ledger);
  copy_biases(backend, biases);
  const Slice sums =
      add_up(backend, ExpertRanks::split_forward_label, made, routes, routing.arriving_weights);
  if (are_split() && routes.own.count > 0)
    backend.combine_rows(sums, sums, biases, routes.own_of(routing.arriving_experts),
                         routes.own_of(routing.arriving_weights), routes.own.count);
  ranks_.combine(ExpertRanks::combine_label, leaving, sums, routing, width());
  run(rest);
  backend.combine_rows(out, base, leaving, sent.rows, {}, out.count / width());
}

void WeightedExperts::mix_backward_input(Backend& backend, Slice dx, Slice base, Slice products,
                                         Slice dout, const LayerStash& kept, LayerStash& gradients,
                                         const Routing& routing, Ledger& ledger,
                                         const Meanwhile& meanwhile) const {
  const SentRows sent = ranks_.sent(routing);
  const Routes routes = routes_of(routing);
  const auto& a = kept.own<Kept>();
  auto& d = gradients.own<GradientsOfRows>();
  const Slice leaving = rows(Use::leaving, most_sent(routing), std::ssize(sent.tokens));
  backend.gather_rows(leaving, dout, sent.tokens, {});
  const Meanwhile rest = ranks_.run_during_dispatch(meanwhile);
  const Slice dmade = make(d.made, most_rows_here(), width(), ledger);
  const Slice arrived =
      dispatch(backend, {ExpertRanks::combine_backward_label, ExpertRanks::split_backward_label},
               dmade, leaving, routing, routes);
  const Count most_numbers = ranks_.most_received() * routes.of_row;
  const Slice of_biases =
      numbers(Use::weights_of_biases, most_numbers, routes.own.count * routes.of_row);
  if (routes.own.count > 0)
    backend.row_products(of_biases, arrived, a.biases.slice(),
                         routes.own_of(routing.arriving_experts), routes.own.count);
  const Slice of_rows = numbers(Use::weights_by_expert, most_rows_here(), routes.rows()),
              dinput = rows(Use::by_expert, most_rows_here(), routes.rows());
  own_backward_weighted(backend, of_rows, dinput, dmade, routes.weights, a.rows, d.hidden,
                        routes.of_expert, most_rows_here(), ledger);
  const Slice sums = add_up(backend, ExpertRanks::split_backward_label, dinput, routes, {});
  ranks_.combine(ExpertRanks::dispatch_backward_label, leaving, sums, routing, width());
  run(rest);
  backend.combine_rows(dx, base, leaving, sent.rows, {}, dx.count / width());
  return_products(backend, products, of_rows, of_biases, sent, routing, routes);
}

void WeightedExperts::return_products(Backend& backend, Slice products, Slice of_rows,
                                      Slice of_biases, const SentRows& sent, const Routing& routing,
                                      const Routes& routes) const {
  const Count of_row = routes.of_row, arrived = routes.arrived() * of_row;
  const Slice by_rank = numbers(Use::weights_by_rank, ranks_.most_received() * of_row, arrived);
  if (arrived > 0) backend.combine_rows(by_rank, {}, of_rows, routes.places, {}, arrived);
  ranks_.parts().sum(ExpertRanks::weights_backward_label, by_rank, routes.of_parts);
  const Slice own = by_rank.part(routes.own.first * of_row, routes.own.count * of_row);
  if (own.count > 0) backend.combine_rows(own, own, of_biases, in_order(own.count), {}, own.count);
  const Slice returned =
      numbers(Use::weights_leaving, most_sent(routing) * of_row, std::ssize(sent.tokens) * of_row);
  ranks_.combine_weights(returned, own, routing);
  backend.combine_rows(products, {}, returned, sent.places, {}, products.count);
}

void WeightedExperts::mix_backward_weight(Backend& backend, const LayerStash& kept,
                                          const LayerStash& gradients,
                                          const Routing& routing) const {
  const auto& d = gradients.own<GradientsOfRows>();
  const Routes routes = routes_of(routing);
  own_backward_weight(backend, d.made.slice(), kept.own<Kept>().rows, d.hidden, routes.of_expert);
  if (!are_split()) return;
  for (const RowsOfExpert& own : routes.own_by_expert)
    ranks_.parts().announce_own(d.made.slice().part(own.first * width(), own.count * width()));
  backward_biases(backend, d.made.slice(), routes.own_by_expert);
}

}  // namespace lockstep
