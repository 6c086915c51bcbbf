#include "parallel/expert/experts.h"

#include <numeric>

#include "parallel/expert/weighted_experts.h"

namespace lockstep {
namespace {

ExpertPart part_of(const GptConfig& config, const ExpertSplit& split) {
  const Count hidden = split.hidden(config.experts.width);
  return {
      .experts = {split.first_expert(config.experts.number), split.experts(config.experts.number)},
      .hidden = {split.tensor_rank * hidden, hidden}};
}

}  // namespace

DividedExperts::DividedExperts(Parameters& parameters, const std::string& name,
                               const GptConfig& config, ExpertRanks& ranks)
    : Experts(parameters, name, config, part_of(config, ranks.split())), ranks_(ranks) {}

std::unique_ptr<Experts> make_divided_experts(Parameters& parameters, const std::string& name,
                                              const GptConfig& config, ExpertRanks& ranks) {
  if (!ranks.split().weights_at_experts)
    return std::make_unique<DividedExperts>(parameters, name, config, ranks);
  return std::make_unique<WeightedExperts>(parameters, name, config, part_of(config, ranks.split()),
                                           ranks);
}

// lab: routes_of
// Rows come from all ranks that divide experts, for each of the ranks that split them.
struct DividedExperts::Routes {
  std::vector<Count> of_parts;   // rows that the ranks that split experts have got
  std::size_t own_part = 0;      // this rank among them
  std::vector<Count> of_expert;  // all these rows, by expert
  // Of each row by expert, its place by rank; and the other way around.
  std::vector<std::int32_t> by_expert, by_rank;
  // This rank's own rows, counted from the first in its part, and among those by expert.
  std::vector<RowsOfExpert> own, own_by_expert;
  Count rows() const { return std::ssize(by_expert); }
};

DividedExperts::Routes DividedExperts::routes_of(const Routing& routing) const {
  const ExpertSplit& split = ranks_.split();
  const auto ranks = static_cast<std::size_t>(split.ranks);
  const auto parts = static_cast<std::size_t>(split.gathered_ranks());
  const std::size_t own = routing.counts.size() / ranks;
  Routes routes{.of_parts = std::vector<Count>(parts),
                .own_part = static_cast<std::size_t>(parts > 1 ? split.tensor_rank : 0),
                .of_expert = std::vector<Count>(own),
                .by_expert = {},
                .by_rank = {},
                .own = {},
                .own_by_expert = {}};
  const auto place = [&](std::size_t part, std::size_t rank, std::size_t e) {
    return (part * ranks + rank) * own + e;
  };
  std::vector<Count> begins;  // of the rows of each place
  Count rows = 0;
  for (std::size_t part = 0; part < parts; ++part)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::size_t e = 0; e < own; ++e) {
        const Count count = routing.arriving_of_parts[place(part, rank, e)];
        if (part == routes.own_part)
          routes.own.push_back({.expert = e, .first = routes.of_parts[part], .count = count});
        routes.of_parts[part] += count;
        routes.of_expert[e] += count;
        begins.push_back(rows);
        rows += count;
      }
  routes.by_rank.resize(static_cast<std::size_t>(rows));
  // lab: solution
  // lesson: orders
  for (std::size_t expert = 0; expert < own; ++expert)
    for (std::size_t source = 0; source < ranks; ++source)
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t from = place(part, source, expert);
        const Count begin = begins[from], end = begin + routing.arriving_of_parts[from];
        if (routes.own_part == part)
          routes.own_by_expert.push_back(
              {.expert = expert, .first = routes.rows(), .count = end - begin});
        for (Count here = begin; here < end; ++here) {
          routes.by_rank[static_cast<std::size_t>(here)] = static_cast<std::int32_t>(routes.rows());
          routes.by_expert.push_back(static_cast<std::int32_t>(here));
        }
      }
  // lesson: end
  // lab: given
  return routes;
}
// lab: end

Slice DividedExperts::own_part(Slice by_rank, const Routes& routes) const {
  const auto before = routes.of_parts.begin() + static_cast<std::ptrdiff_t>(routes.own_part);
  const Count first = std::accumulate(routes.of_parts.begin(), before, Count{0});
  return by_rank.part(first * width(), *before * width());
}

// lab: dispatch
void DividedExperts::dispatch(Backend& backend, Labels labels, Slice here, Slice leaving,
                              const Routing& routing, const Routes& routes) const {
  const Count rows = routes.rows();
  const Slice by_rank = first_rows(scratch(ExpertRanks::Use::by_rank, most_rows_here()), rows);
  ranks_.announce(by_rank, leaving);
  // lab: solution
  ranks_.dispatch(labels.between_experts, own_part(by_rank, routes), leaving, routing, width());
  // lab: given
  ranks_.parts().gather(labels.of_split_experts, by_rank, routes.of_parts);
  // lab: solution
  if (rows > 0) backend.gather_rows(first_rows(here, rows), by_rank, routes.by_expert, {});
  // lab: given
}
// lab: end

// lab: combine
template <typename Complete>
void DividedExperts::combine(Backend& backend, Labels labels, Slice returning, Slice here,
                             const Routing& routing, const Routes& routes,
                             Complete complete) const {
  const Count rows = routes.rows();
  const Slice by_rank = first_rows(scratch(ExpertRanks::Use::by_rank, most_rows_here()), rows);
  // lab: solution
  if (rows > 0) backend.gather_rows(by_rank, first_rows(here, rows), routes.by_rank, {});
  // lab: given
  ranks_.parts().sum(labels.of_split_experts, by_rank, routes.of_parts);
  const Slice own = own_part(by_rank, routes);
  complete(own);
  // lab: solution
  ranks_.combine(labels.between_experts, returning, own, routing, width());
  // lab: given
}
// lab: end

// lab: passes
Slice DividedExperts::input(LayerStash&, const Routing& routing, Ledger&) const {
  return scratch(ExpertRanks::Use::leaving, most_rows(routing));
}

void DividedExperts::forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing,
                             const Rows& tokens, Ledger& ledger) const {
  if (!tokens.again) ranks_.exchange_counts(routing);
  const Routes routes = routes_of(routing);
  if (tokens.in_training() && !tokens.again) {
    DispatchedRows dispatched = dispatched_rows(routing);
    dispatched.of_parts = routes.of_parts;
    ranks_.record(std::move(dispatched), routes.rows());
  }
  const Count sent = std::ssize(routing.tokens);
  auto& a = kept.own<Activations>();
  dispatch(backend, {ExpertRanks::dispatch_label, ExpertRanks::split_forward_label},
           make(a.input, most_rows_here(), width(), ledger),
           scratch(ExpertRanks::Use::leaving, sent), routing, routes);
  const Slice made_here = scratch(ExpertRanks::Use::by_expert, most_rows_here());
  own_forward(backend, made_here, a, routes.of_expert, most_rows_here(), ledger);
  combine(backend, {ExpertRanks::combine_label, ExpertRanks::split_forward_label},
          first_rows(made, sent), made_here, routing, routes, [&](Slice own) {
            if (are_split()) add_biases(backend, own, routes.own);
          });
}

void DividedExperts::backward_input(Backend& backend, Slice dinput, Slice dmade,
                                    const LayerStash& kept, LayerStash& gradients,
                                    const Routing& routing, Ledger& ledger) const {
  const Routes routes = routes_of(routing);
  const Count sent = std::ssize(routing.tokens);
  const auto& a = kept.own<Activations>();
  auto& d = gradients.own<GradientsOfRows>();
  const Slice dmade_here = make(d.made, most_rows_here(), width(), ledger),
              dinput_here = scratch(ExpertRanks::Use::by_expert, most_rows_here());
  dispatch(backend, {ExpertRanks::combine_backward_label, ExpertRanks::split_backward_label},
           dmade_here, first_rows(dmade, sent), routing, routes);
  own_backward_input(backend, dinput_here, dmade_here, a, d.hidden, routes.of_expert,
                     most_rows_here(), ledger);
  combine(backend, {ExpertRanks::dispatch_backward_label, ExpertRanks::split_backward_label},
          first_rows(dinput, sent), dinput_here, routing, routes, [](Slice) {});
}

void DividedExperts::backward_weight(Backend& backend, Slice, const LayerStash& kept,
                                     const LayerStash& gradients, const Routing& routing) const {
  const auto& d = gradients.own<GradientsOfRows>();
  const Routes routes = routes_of(routing);
  own_backward_weight(backend, d.made.slice(), kept.own<Activations>(), d.hidden, routes.of_expert);
  if (!are_split()) return;
  for (const RowsOfExpert& rows : routes.own_by_expert)
    ranks_.parts().announce_own(d.made.slice().part(rows.first * width(), rows.count * width()));
  backward_biases(backend, d.made.slice(), routes.own_by_expert);
}
// lab: end

}  // namespace lockstep
