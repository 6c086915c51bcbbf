#include "models/layers/experts.h"

#include <fmt/format.h>

#include <numeric>

namespace lockstep {
namespace {

// Without the memory for rows that were dropped.
Slice used(const Routing& routing, Slice slice, Count columns) {
  return slice.first(std::ssize(routing.tokens) * columns);
}

}  // namespace

Expert::Expert(Parameters& parameters, const std::string& name, Count width, Range hidden,
               bool is_split)
    : expand(parameters, name + "c_fc", width, hidden.count, Initial::normal,
             is_split ? column_regions(parameters, width, hidden) : LinearRegions{}),
      contract(parameters, name + "c_proj", hidden.count, width, Initial::branch_end,
               is_split ? row_regions(parameters, hidden, width) : LinearRegions{}) {}

Experts::Experts(Parameters& parameters, const std::string& name, const GptConfig& config,
                 const ExpertPart& part)
    : parameters_(parameters),
      width_(config.width),
      hidden_(part.hidden.count),
      config_(config.experts) {
  for (Count e = part.experts.first; e < part.experts.first + part.experts.count; ++e) {
    const std::string of_expert = fmt::format("{}experts.{}.", name, e);
    experts_.emplace_back(parameters, of_expert, width_, part.hidden, are_split());
    parameters.make_hidden(of_expert + "c_fc.weight", width_, {config_.width});
    parameters.make_hidden(of_expert + "c_proj.weight", config_.width, {width_});
  }
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

void Experts::mix(Backend& backend, Slice out, Slice base, Slice x, LayerStash& kept,
                  Routing& routing, const Rows& rows, Ledger& ledger,
                  const Meanwhile& meanwhile) const {
  auto& a = kept.own<Mixed>();
  const Slice gathered = used(routing, input(a.rows, routing, ledger), width_);
  backend.gather_rows(gathered, x, routing.tokens, {});
  const Slice made = make(a.made, most_rows(routing), width_, ledger);
  const Meanwhile rest = begin_meanwhile(meanwhile);
  forward(backend, made, a.rows, routing, rows, ledger);
  run(rest);
  backend.combine_rows(out, base, made, routing.rows, routing.weights, out.count / width_);
}

void Experts::mix_backward_input(Backend& backend, Slice dx, Slice base, Slice products, Slice dout,
                                 const LayerStash& kept, LayerStash& gradients,
                                 const Routing& routing, Ledger& ledger,
                                 const Meanwhile& meanwhile) const {
  const auto& a = kept.own<Mixed>();
  auto& d = gradients.own<GradientsOfMixed>();
  const Count n = dx.count / width_;
  backend.row_products(products, dout, a.made.slice(), routing.rows, n);
  std::vector<double> factors(routing.tokens.size());
  for (std::size_t choice = 0; choice < routing.rows.size(); ++choice)
    if (routing.rows[choice] >= 0) factors[routing.rows[choice]] = routing.weights[choice];
  const Slice dmade = make(d.made, most_rows(routing), width_, ledger);
  backend.gather_rows(used(routing, dmade, width_), dout, routing.tokens, factors);
  const Slice dgathered = make(d.gathered, most_rows(routing), width_, ledger);
  const Meanwhile rest = begin_meanwhile(meanwhile);
  backward_input(backend, dgathered, dmade, a.rows, d.rows, routing, ledger);
  run(rest);
  backend.combine_rows(dx, base, dgathered, routing.rows, {}, n);
}

void Experts::mix_backward_weight(Backend& backend, const LayerStash& kept,
                                  const LayerStash& gradients, const Routing& routing) const {
  const auto& d = gradients.own<GradientsOfMixed>();
  backward_weight(backend, d.made.slice(), kept.own<Mixed>().rows, d.rows, routing);
}

Slice Experts::input(LayerStash& kept, const Routing& routing, Ledger& ledger) const {
  return make(kept.own<Activations>().input, most_rows(routing), width_, ledger);
}

void Experts::forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing, const Rows&,
                      Ledger& ledger) const {
  own_forward(backend, made, kept.own<Activations>(), routing.counts, most_rows(routing), ledger);
}

void Experts::backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                             LayerStash& gradients, const Routing& routing, Ledger& ledger) const {
  own_backward_input(backend, dinput, dmade, kept.own<Activations>(), gradients.own<Gradients>(),
                     routing.counts, most_rows(routing), ledger);
}

void Experts::backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                              const LayerStash& gradients, const Routing& routing) const {
  own_backward_weight(backend, dmade, kept.own<Activations>(), gradients.own<Gradients>(),
                      routing.counts);
}

void Experts::own_forward(Backend& backend, Slice made, Activations& a, Counts counts, Count most,
                          Ledger& ledger) const {
  const Slice hidden = make(a.hidden, most, hidden_, ledger),
              activated = make(a.activated, most, hidden_, ledger);
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    if (count == 0) return;
    const Slice own = rows(activated, hidden_), out = rows(made, width_);
    expert.expand.forward_gelu(backend, rows(hidden, hidden_), own, rows(a.input.slice(), width_),
                               count);
    if (are_split())
      expert.contract.product(backend, out, own, count);
    else
      expert.contract.forward(backend, out, {}, own, count);
  });
}

void Experts::own_backward_input(Backend& backend, Slice dinput, Slice dmade, const Activations& a,
                                 Gradients& d, Counts counts, Count most, Ledger& ledger) const {
  const Slice dhidden = make(d.hidden, most, hidden_, ledger);
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    if (count == 0) return;
    const Slice own = rows(dhidden, hidden_);
    expert.contract.backward_gelu(backend, own, rows(dmade, width_),
                                  rows(a.hidden.slice(), hidden_), count);
    expert.expand.backward_input(backend, rows(dinput, width_), own, count);
  });
}

void Experts::own_backward_weighted(Backend& backend, Slice products, Slice dinput, Slice dmade,
                                    std::span<const double> weights, const Activations& a,
                                    Gradients& d, Counts counts, Count most, Ledger& ledger) const {
  const Slice dhidden = make(d.hidden, most, hidden_, ledger);
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    if (count == 0) return;
    std::vector<std::int32_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    const auto own_weights = weights.first(all.size());
    weights = weights.subspan(all.size());
    const Slice own = rows(dhidden, hidden_), dout = rows(dmade, width_);
    expert.contract.backward_input(backend, own, dout, count);
    backend.row_products(rows(products, 1), own, rows(a.activated.slice(), hidden_), all, count);
    backend.gather_rows(own, own, all, own_weights);
    backend.gelu_backward(own, own, rows(a.hidden.slice(), hidden_));
    expert.expand.backward_input(backend, rows(dinput, width_), own, count);
    backend.gather_rows(dout, dout, all, own_weights);
  });
}

void Experts::own_backward_weight(Backend& backend, Slice dmade, const Activations& a,
                                  const Gradients& d, Counts counts) const {
  const auto gradient = [this](int parameter) { return parameters_.gradient(parameter); };
  std::vector<RowsOfExpert> all;
  Count first = 0;
  for_each_expert(counts, [&](const Expert& expert, Count count, auto rows) {
    all.push_back({.expert = all.size(), .first = first, .count = count});
    first += count;
    // The gradient of an expert without tokens is zero, not absent.
    if (count == 0) {
      for (const int parameter :
           {expert.expand.weight(), expert.expand.bias(), expert.contract.weight()})
        backend.add_no_rows(gradient(parameter), dmade);
      return;
    }
    const Slice dhidden = rows(d.hidden.slice(), hidden_);
    expert.contract.backward_matrix(backend, rows(dmade, width_),
                                    rows(a.activated.slice(), hidden_), count);
    expert.expand.backward_matrix(backend, dhidden, rows(a.input.slice(), width_), count);
    expert.expand.backward_bias(backend, dhidden, count);
  });
  if (!are_split()) backward_biases(backend, dmade, all);
}

void Experts::copy_biases(Backend& backend, Slice table) const {
  for (Count e = 0; e < std::ssize(experts_); ++e)
    backend.copy({table.part(e * width_, width_), 1, width_},
                 {experts_[e].contract.bias_value(), 1, width_}, 0);
}

void Experts::add_biases(Backend& backend, Slice made, std::span<const RowsOfExpert> all) const {
  for (const auto& [expert, first, count] : all) {
    if (count == 0) continue;
    const Slice rows = made.part(first * width_, count * width_);
    backend.bias_dropout_add(rows, {}, rows, experts_[expert].contract.bias_value(), count, {});
  }
}

void Experts::backward_biases(Backend& backend, Slice dmade,
                              std::span<const RowsOfExpert> all) const {
  for (const auto& [expert, first, count] : all)
    if (count > 0)
      experts_[expert].contract.backward_bias(backend, dmade.part(first * width_, count * width_),
                                              count);
    else
      backend.add_no_rows(parameters_.gradient(experts_[expert].contract.bias()), dmade);
}

}  // namespace lockstep
