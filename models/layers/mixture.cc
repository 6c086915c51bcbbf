#include "models/layers/mixture.h"

#include <fmt/format.h>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

Slice rows_from(Slice slice, Range rows, Count all) {
  const Count columns = slice.count / all;
  return slice.part(rows.first * columns, rows.count * columns);
}

// Without the memory for rows that were dropped.
Slice used(const Routing& routing, Slice slice, Count all) {
  return rows_from(slice, {0, std::ssize(routing.tokens)}, all);
}

}  // namespace

Mixture::Mixture(Parameters& parameters, const std::string& name, const GptConfig& config,
                 const Masks& masks, int layer)
    : parameters_(parameters),
      width_(config.width),
      router_(config.experts),
      router_weight_(parameters.add({.name = name + "router.weight",
                                     .shape = {width_, config.experts.number},
                                     .initial = Initial::normal})),
      masks_(masks),
      layer_(layer) {
  const auto expert = [&](const std::string& of, Count hidden) {
    Linear expand(parameters, of + "c_fc", width_, hidden, Initial::normal);
    return Expert{std::move(expand),
                  Linear(parameters, of + "c_proj", hidden, width_, Initial::branch_end)};
  };
  if (config.experts.shared > 0)
    shared_.emplace(expert(name + "shared.", config.experts.shared_width()));
  for (int e = 0; e < config.experts.number; ++e)
    experts_.push_back(expert(fmt::format("{}experts.{}.", name, e), config.experts.width));
}

void Mixture::Expert::add_no_rows(Backend& backend, Slice x) const {
  for (const Linear* linear : {&expand, &contract})
    for (const int parameter : {linear->weight(), linear->bias()})
      backend.add_no_rows(linear->parameters().gradient(parameter), x);
}

int Mixture::last_parameter() const { return experts_.back().contract.bias(); }

template <typename Run>
void Mixture::for_each_expert(const Routing& routing, Run run) const {
  Range rows;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    rows = {rows.first + rows.count, routing.counts[e]};
    run(experts_[e], rows);
  }
}

Slice Mixture::input(MlpStash& kept, const Rows& rows, Ledger& ledger) const {
  Tensor& input = kept.tensors.own<Activations>().input;
  ensure(input, {rows.count(), width_}, parameters_.dtype(), ledger, MemoryUse::activations);
  return input.slice();
}

void Mixture::forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
                      Ledger& ledger) const {
  auto& a = kept.tensors.own<Activations>();
  const ExpertConfig& config = router_.config();
  const Count n = rows.count(), all = chosen(rows);
  const Slice x = a.input.slice();
  const auto make = [&](Tensor& tensor, Count count, Count columns, DType dtype) {
    ensure(tensor, {count, columns}, dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  const Slice scores = make(a.scores, n, config.number, statistics_type(x.dtype));
  backend.gemm({x, n, width_}, router(parameters_.value(router_weight_)),
               {scores, n, config.number}, 0);
  if (!rows.again) kept.routing = backend.route(router_, scores, rows.sequences);

  backend.gather_rows(used(kept.routing, make(a.gathered, all, width_, x.dtype), all), x,
                      kept.routing.tokens, {});
  make(a.experts.hidden, all, config.width, x.dtype);
  make(a.experts.activated, all, config.width, x.dtype);
  const Slice made = make(a.made, all, width_, x.dtype);
  for_each_expert(kept.routing, [&](const Expert& expert, Range own) {
    if (own.count == 0) return;
    const auto of = [&](const Tensor& tensor) { return rows_from(tensor.slice(), own, all); };
    expert.expand.forward_gelu(backend, of(a.experts.hidden), of(a.experts.activated),
                               of(a.gathered), own.count);
    expert.contract.forward(backend, of(a.made), {}, of(a.experts.activated), own.count);
  });

  // Without dropout the sums begin with `base`; otherwise it is added to what dropout leaves.
  const Dropout dropout = mask(rows);
  Slice begun = dropout.rate == 0 ? base : Slice{};
  if (shared_) {
    const Slice shared_hidden = make(a.shared.hidden, n, config.shared_width(), x.dtype);
    const Slice activated = make(a.shared.activated, n, config.shared_width(), x.dtype);
    shared_->expand.forward_gelu(backend, shared_hidden, activated, x, n);
    shared_->contract.forward(backend, out, begun, activated, n);
    begun = out;
  }
  backend.combine_rows(out, begun, made, kept.routing.rows, kept.routing.weights, n);
  if (dropout.rate == 0) return;
  backend.dropout(out, out, n, dropout);
  backend.copy({out, n, width_}, {base, n, width_}, 1);
}

void Mixture::backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                             LayerStash& gradients, const Rows& rows, Ledger& ledger,
                             const Meanwhile& meanwhile) const {
  const auto& a = kept.tensors.own<Activations>();
  auto& d = gradients.own<Gradients>();
  const ExpertConfig& config = router_.config();
  const Count n = rows.count(), all = chosen(rows);
  const auto make = [&](Tensor& tensor, Count count, Count columns, DType dtype) {
    ensure(tensor, {count, columns}, dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  if (const Dropout dropout = mask(rows); dropout.rate > 0)
    backend.dropout(make(d.undropped, n, width_, dout.dtype), dout, n, dropout);
  const Slice dsum = undropped(dout, d);

  const Slice products = make(d.products, n, config.per_token, a.scores.dtype());
  backend.row_products(products, dsum, a.made.slice(), kept.routing.rows, n);
  const Slice dscores = make(d.scores, n, config.number, dx.dtype);
  backend.route_backward(router_, dscores, a.scores.slice(), products, kept.routing, rows.sequences,
                         rows.router_scale);

  std::vector<double> factors(kept.routing.tokens.size());
  for (std::size_t choice = 0; choice < kept.routing.rows.size(); ++choice)
    if (kept.routing.rows[choice] >= 0)
      factors[kept.routing.rows[choice]] = kept.routing.weights[choice];
  backend.gather_rows(used(kept.routing, make(d.made, all, width_, dx.dtype), all), dsum,
                      kept.routing.tokens, factors);
  make(d.hidden, all, config.width, dx.dtype);
  const Slice dgathered = make(d.gathered, all, width_, dx.dtype);
  for_each_expert(kept.routing, [&](const Expert& expert, Range own) {
    if (own.count == 0) return;
    const auto of = [&](const Tensor& tensor) { return rows_from(tensor.slice(), own, all); };
    expert.contract.backward_gelu(backend, of(d.hidden), of(d.made), of(a.experts.hidden),
                                  own.count);
    expert.expand.backward_input(backend, of(d.gathered), of(d.hidden), own.count);
  });

  Slice begun;
  if (shared_) {
    const Slice dhidden = make(d.shared_hidden, n, config.shared_width(), dx.dtype);
    shared_->contract.backward_gelu(backend, dhidden, dsum, a.shared.hidden.slice(), n);
    shared_->expand.backward_input(backend, dx, dhidden, n);
    begun = dx;
  }
  backend.combine_rows(dx, begun, dgathered, kept.routing.rows, {}, n);
  backend.gemm({dscores, n, config.number}, router(parameters_.value(router_weight_)).t(),
               {dx, n, width_}, 1);
  run(meanwhile);
}

void Mixture::backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                              const LayerStash& gradients, const Rows& rows) const {
  const auto& a = kept.tensors.own<Activations>();
  const auto& d = gradients.own<Gradients>();
  const Count n = rows.count(), all = chosen(rows);
  const auto add = [&](const Expert& expert, Slice dmade, Slice dhidden, Slice activated, Slice x,
                       Count count) {
    expert.contract.backward_matrix(backend, dmade, activated, count);
    expert.contract.backward_bias(backend, dmade, count);
    expert.expand.backward_matrix(backend, dhidden, x, count);
    expert.expand.backward_bias(backend, dhidden, count);
  };
  if (shared_)
    add(*shared_, undropped(dout, d), d.shared_hidden.slice(), a.shared.activated.slice(),
        a.input.slice(), n);
  for_each_expert(kept.routing, [&](const Expert& expert, Range own) {
    // The gradient of an expert without tokens is zero, not absent.
    if (own.count == 0) return expert.add_no_rows(backend, d.made.slice());
    const auto of = [&](const Tensor& tensor) { return rows_from(tensor.slice(), own, all); };
    add(expert, of(d.made), of(d.hidden), of(a.experts.activated), of(a.gathered), own.count);
  });
  backend.gemm(Matrix(a.input.slice(), n, width_).t(),
               {d.scores.slice(), n, router_.config().number},
               router(parameters_.gradient(router_weight_)), 1);
}

}  // namespace lockstep
