#include "models/layers/experts.h"

#include <fmt/format.h>

namespace lockstep {

void Expert::backward_weight(Backend& backend, Slice dout, Slice dhidden, Slice activated, Slice x,
                             Count rows) const {
  contract.backward_matrix(backend, dout, activated, rows);
  contract.backward_bias(backend, dout, rows);
  expand.backward_matrix(backend, dhidden, x, rows);
  expand.backward_bias(backend, dhidden, rows);
}

void Expert::add_no_rows(Backend& backend, Slice x) const {
  for (const Linear* linear : {&expand, &contract})
    for (const int parameter : {linear->weight(), linear->bias()})
      backend.add_no_rows(linear->parameters().gradient(parameter), x);
}

Experts::Experts(Parameters& parameters, const std::string& name, const GptConfig& config,
                 Range which)
    : parameters_(parameters), width_(config.width), config_(config.experts) {
  for (Count e = which.first; e < which.first + which.count; ++e)
    experts_.emplace_back(parameters, fmt::format("{}experts.{}.", name, e), width_, config_.width);
}

template <typename Run>
void Experts::for_each_expert(Counts counts, Run run) const {
  Count first = 0;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const Count count = counts[e];
    run(experts_[e], count, [first, count](Slice slice, Count columns) {
      return slice.part(first * columns, count * columns);
    });
    first += count;
  }
}

Slice Experts::input(LayerStash& kept, const Rows& tokens, Ledger& ledger) const {
  return make(kept.own<Activations>().input, config_.most_rows(tokens.count()), width_, ledger);
}

void Experts::forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing,
                      const Rows& tokens, Ledger& ledger) const {
  own_forward(backend, made, kept.own<Activations>(), routing.counts,
              config_.most_rows(tokens.count()), ledger);
}

void Experts::backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                             LayerStash& gradients, const Routing& routing, const Rows& tokens,
                             Ledger& ledger) const {
  own_backward_input(backend, dinput, dmade, kept.own<Activations>(), gradients.own<Gradients>(),
                     routing.counts, config_.most_rows(tokens.count()), ledger);
}

void Experts::backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                              const LayerStash& gradients, const Routing& routing) const {
  own_backward_weight(backend, dmade, kept.own<Activations>(), gradients.own<Gradients>(),
                      routing.counts);
}

void Experts::own_forward(Backend& backend, Slice made, Activations& a, Counts counts, Count most,
                          Ledger& ledger) const {
  const Slice hidden = make(a.hidden, most, config_.width, ledger),
              activated = make(a.activated, most, config_.width, ledger);
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    if (count == 0) return;
    expert.forward(backend, rows(made, width_), {}, rows(hidden, config_.width),
                   rows(activated, config_.width), rows(a.input.slice(), width_), count);
  });
}

void Experts::own_backward_input(Backend& backend, Slice dinput, Slice dmade, const Activations& a,
                                 Gradients& d, Counts counts, Count most, Ledger& ledger) const {
  const Slice dhidden = make(d.hidden, most, config_.width, ledger);
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    if (count == 0) return;
    expert.backward_input(backend, rows(dinput, width_), rows(dhidden, config_.width),
                          rows(dmade, width_), rows(a.hidden.slice(), config_.width), count);
  });
}

void Experts::own_backward_weight(Backend& backend, Slice dmade, const Activations& a,
                                  const Gradients& d, Counts counts) const {
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    // The gradient of an expert without tokens is zero, not absent.
    if (count == 0) return expert.add_no_rows(backend, dmade);
    expert.backward_weight(backend, rows(dmade, width_), rows(d.hidden.slice(), config_.width),
                           rows(a.activated.slice(), config_.width), rows(a.input.slice(), width_),
                           count);
  });
}

}  // namespace lockstep
