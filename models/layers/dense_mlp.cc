#include "models/layers/dense_mlp.h"

namespace lockstep {

DenseMlp::DenseMlp(const LayerFactory& factory, Parameters& parameters, const std::string& name,
                   Count width, Count hidden, const Masks& masks, int layer)
    : expand_(factory.column(parameters, name + "c_fc", width, hidden)),
      contract_(factory.row(parameters, name + "c_proj", hidden, width)),
      hidden_(hidden / factory.split().ranks),
      masks_(masks),
      layer_(layer) {
  parameters.make_hidden(name + "c_fc.weight", width, {hidden});
  parameters.make_hidden(name + "c_proj.weight", hidden, {width});
}

Slice DenseMlp::input(MlpStash& kept, const Rows& rows, Ledger& ledger) const {
  return expand_->input(kept.tensors.own<Activations>().input, rows.count(), ledger);
}

void DenseMlp::forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
                       Ledger& ledger) const {
  auto& [input, hidden, kept_activated] = kept.tensors.own<Activations>();
  Tensor& activated = contract_->input(kept_activated);
  for (Tensor* const tensor : {&hidden, &activated})
    ensure(*tensor, {rows.count(), hidden_}, out.dtype, ledger, MemoryUse::activations);
  expand_->forward_gelu(backend, hidden.slice(), activated.slice(), input, rows);
  contract_->forward(backend, out, base, activated.slice(), rows, mask(rows));
}

void DenseMlp::backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                              LayerStash& gradients, const Rows& rows, Ledger& ledger,
                              const Meanwhile& meanwhile) const {
  auto& [dhidden, contracted] = gradients.own<Gradients>();
  ensure(dhidden, {rows.count(), hidden_}, dx.dtype, ledger, MemoryUse::activations);
  contract_->backward_gelu(backend, dhidden.slice(), contracted, dout,
                           kept.tensors.own<Activations>().hidden.slice(), rows, mask(rows),
                           ledger);
  if (!contract_->passes_gradient()) return run(meanwhile);
  expand_->backward_input(backend, dx, dhidden.slice(), rows, meanwhile);
}

void DenseMlp::backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                               const LayerStash& gradients, const Rows& rows) const {
  const auto& [input, hidden, activated] = kept.tensors.own<Activations>();
  const auto& [dhidden, contracted] = gradients.own<Gradients>();
  contract_->backward_weight(backend, contracted, dout, activated.slice(), rows);
  expand_->backward_weight(backend, dhidden.slice(), input, rows);
}

}  // namespace lockstep
