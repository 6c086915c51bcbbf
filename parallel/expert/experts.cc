#include "parallel/expert/experts.h"

#include <fmt/format.h>

namespace lockstep {

DividedExperts::DividedExperts(Parameters& parameters, const std::string& name,
                               const GptConfig& config, ExpertRanks& ranks)
    : Experts(parameters, name, config,
              {ranks.split().first_expert(config.experts.number),
               ranks.split().experts(config.experts.number)}),
      ranks_(ranks) {}

struct DividedExperts::Routes {
  std::vector<Count> leaving, arriving;  // rows, by rank
  std::vector<Count> of_expert;          // rows that arrive for each of this rank's experts
  // Of each row by expert, its place by rank; and the other way around.
  std::vector<std::int32_t> by_expert, by_rank;
  Count rows() const { return std::ssize(by_expert); }
};

DividedExperts::Routes DividedExperts::routes_of(const Routing& routing) const {
  const auto ranks = static_cast<std::size_t>(ranks_.split().ranks);
  const std::size_t own = routing.counts.size() / ranks;
  Routes routes{.leaving = std::vector<Count>(ranks),
                .arriving = std::vector<Count>(ranks),
                .of_expert = std::vector<Count>(own),
                .by_expert = {},
                .by_rank = {}};
  std::vector<Count> begins;  // of the rows from each rank for each expert
  Count rows = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t e = 0; e < own; ++e) {
      const Count arriving = routing.arriving[rank * own + e];
      routes.leaving[rank] += routing.counts[rank * own + e];
      routes.arriving[rank] += arriving;
      routes.of_expert[e] += arriving;
      begins.push_back(rows);
      rows += arriving;
    }
  routes.by_rank.resize(static_cast<std::size_t>(rows));
  for (std::size_t e = 0; e < own; ++e)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (Count i = 0; i < routing.arriving[rank * own + e]; ++i) {
        const Count place = begins[rank * own + e] + i;
        routes.by_rank[static_cast<std::size_t>(place)] =
            static_cast<std::int32_t>(routes.by_expert.size());
        routes.by_expert.push_back(static_cast<std::int32_t>(place));
      }
  return routes;
}

void DividedExperts::dispatch(Backend& backend, const char* label, Slice here, Slice leaving,
                              const Routes& routes) const {
  const Count rows = routes.rows();
  const Slice by_rank = first_rows(scratch(ExpertRanks::Use::by_rank, most_rows()), rows);
  ranks_.exchange(label, by_rank, routes.arriving, leaving, routes.leaving);
  if (rows > 0) backend.gather_rows(first_rows(here, rows), by_rank, routes.by_expert, {});
}

void DividedExperts::combine(Backend& backend, const char* label, Slice returning, Slice here,
                             const Routes& routes) const {
  const Count rows = routes.rows();
  const Slice by_rank = first_rows(scratch(ExpertRanks::Use::by_rank, most_rows()), rows);
  if (rows > 0) backend.gather_rows(by_rank, first_rows(here, rows), routes.by_rank, {});
  ranks_.exchange(label, returning, routes.leaving, by_rank, routes.arriving);
}

Slice DividedExperts::input(LayerStash&, const Rows& tokens, Ledger&) const {
  return scratch(ExpertRanks::Use::leaving, config().most_rows(tokens.count()));
}

void DividedExperts::forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing,
                             const Rows& tokens, Ledger& ledger) const {
  if (!tokens.again) ranks_.exchange_counts(routing);
  const Routes routes = routes_of(routing);
  if (tokens.in_training() && !tokens.again)
    ranks_.record({.sent = routes.leaving, .received = routes.arriving});
  const Count sent = std::ssize(routing.tokens);
  auto& a = kept.own<Activations>();
  dispatch(backend, ExpertRanks::dispatch_label, make(a.input, most_rows(), width(), ledger),
           scratch(ExpertRanks::Use::leaving, sent), routes);
  const Slice made_here = scratch(ExpertRanks::Use::by_expert, most_rows());
  own_forward(backend, made_here, a, routes.of_expert, most_rows(), ledger);
  combine(backend, ExpertRanks::combine_label, first_rows(made, sent), made_here, routes);
}

void DividedExperts::backward_input(Backend& backend, Slice dinput, Slice dmade,
                                    const LayerStash& kept, LayerStash& gradients,
                                    const Routing& routing, const Rows&, Ledger& ledger) const {
  const Routes routes = routes_of(routing);
  const Count sent = std::ssize(routing.tokens);
  const auto& a = kept.own<Activations>();
  auto& d = gradients.own<GradientsOfRows>();
  const Slice dmade_here = make(d.made, most_rows(), width(), ledger),
              dinput_here = scratch(ExpertRanks::Use::by_expert, most_rows());
  dispatch(backend, ExpertRanks::combine_backward_label, dmade_here, first_rows(dmade, sent),
           routes);
  own_backward_input(backend, dinput_here, dmade_here, a, d.hidden, routes.of_expert, most_rows(),
                     ledger);
  combine(backend, ExpertRanks::dispatch_backward_label, first_rows(dinput, sent), dinput_here,
          routes);
}

void DividedExperts::backward_weight(Backend& backend, Slice, const LayerStash& kept,
                                     const LayerStash& gradients, const Routing& routing) const {
  const auto& d = gradients.own<GradientsOfRows>();
  own_backward_weight(backend, d.made.slice(), kept.own<Activations>(), d.hidden,
                      routes_of(routing).of_expert);
}

ExpertLayers::ExpertLayers(const LayerFactory& layers, Parameters& experts, ExpertRanks& ranks)
    : WrappedLayers(layers), experts_(experts), ranks_(ranks), split_(layers.split()) {
  split_.experts = ranks.split();
}

std::unique_ptr<Mlp> ExpertLayers::mlp(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const {
  if (!config.experts.in_layer(layer)) return inner().mlp(parameters, layer, config, masks);
  return std::make_unique<Mixture>(parameters, fmt::format("h.{}.mlp.", layer), config,
                                   Masks(masks, split()), layer, [&](const std::string& name) {
                                     return std::make_unique<DividedExperts>(experts_, name, config,
                                                                             ranks_);
                                   });
}

}  // namespace lockstep
