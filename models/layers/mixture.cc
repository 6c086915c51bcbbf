#include "models/layers/mixture.h"

#include "models/ops/narrow_types.h"

namespace lockstep {

Mixture::Mixture(const LayerFactory& factory, Parameters& parameters, const std::string& name,
                 const GptConfig& config, const Masks& masks, int layer)
    : parameters_(parameters),
      split_(factory.split()),
      width_(config.width),
      router_(config.experts, layer),
      router_weight_(parameters.add({.name = name + "router.weight",
                                     .shape = {width_, config.experts.number},
                                     .initial = Initial::normal,
                                     .hidden = {width_, {config.experts.number}}})),
      masks_(masks),
      layer_(layer) {
  if (config.experts.shared > 0)
    // Dropout is for the sum of all experts.
    shared_.emplace(factory, parameters, name + "shared.", width_, config.experts.shared_width(),
                    Masks({}, split_), layer);
  experts_ = factory.experts(parameters, name, config);
}

int Mixture::last_parameter() const {
  if (!divided_experts()) return experts_->last_parameter();
  return shared_ ? shared_->last_parameter() : router_weight_;
}

Slice Mixture::input(MlpStash& kept, const Rows& rows, Ledger& ledger) const {
  auto& a = kept.tensors.own<Activations>();
  if (shared_) return shared_->input(a.shared, rows, ledger);
  ensure(a.input, {own_tokens(rows), width_}, parameters_.dtype(), ledger, MemoryUse::activations);
  return a.input.slice();
}

void Mixture::forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
                      Ledger& ledger) const {
  auto& a = kept.tensors.own<Activations>();
  const ExpertConfig& config = router_.config();
  const Count n = own_tokens(rows);
  const Slice x = own_input(a);
  const auto make = [&](Tensor& tensor, Count count, Count columns, DType dtype) {
    ensure(tensor, {count, columns}, dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  const Slice scores = make(a.scores, n, config.number, statistics_type(x.dtype));
  backend.gemm({x, n, width_}, router(parameters_.value(router_weight_)),
               {scores, n, config.number}, 0);
  if (!rows.again) kept.routing = backend.route(router_, scores, rows.sequences);

  // Without dropout the sums begin with `base`; otherwise it is added to what dropout leaves.
  const Dropout dropout = mask(rows);
  const Slice begun = dropout.rate == 0 ? base : Slice{};
  const auto compute_shared = [&] {
    if (shared_) shared_->forward(backend, out, begun, a.shared, rows, ledger);
  };
  experts_->mix(backend, out, shared_ ? out : begun, x, a.experts, kept.routing, rows, ledger,
                compute_shared);
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
  const Count n = own_tokens(rows);
  const auto make = [&](Tensor& tensor, Count count, Count columns, DType dtype) {
    ensure(tensor, {count, columns}, dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  if (const Dropout dropout = mask(rows); dropout.rate > 0)
    backend.dropout(make(d.undropped, n, width_, dout.dtype), dout, n, dropout);
  const Slice dsum = undropped(dout, d);

  const auto backward_shared = [&] {
    if (shared_) shared_->backward_input(backend, dx, dsum, a.shared, d.shared, rows, ledger, {});
  };
  const Slice products = make(d.products, n, config.per_token, a.scores.dtype());
  experts_->mix_backward_input(backend, dx, shared_ ? dx : Slice{}, products, dsum, a.experts,
                               d.experts, kept.routing, ledger, backward_shared);
  const Slice dscores = make(d.scores, n, config.number, dx.dtype);
  backend.route_backward(router_, dscores, a.scores.slice(), products, kept.routing, rows.sequences,
                         rows.router_scale);
  backend.gemm({dscores, n, config.number}, router(parameters_.value(router_weight_)).t(),
               {dx, n, width_}, 1);
  run(meanwhile);
}

void Mixture::backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                              const LayerStash& gradients, const Rows& rows) const {
  const auto& a = kept.tensors.own<Activations>();
  const auto& d = gradients.own<Gradients>();
  const Count n = own_tokens(rows);
  if (shared_) shared_->backward_weight(backend, undropped(dout, d), a.shared, d.shared, rows);
  experts_->mix_backward_weight(backend, a.experts, d.experts, kept.routing);
  backend.gemm(Matrix(own_input(a), n, width_).t(), {d.scores.slice(), n, router_.config().number},
               router(parameters_.gradient(router_weight_)), 1);
}

}  // namespace lockstep
