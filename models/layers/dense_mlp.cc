#include "models/layers/dense_mlp.h"

namespace lockstep {

DenseMlp::DenseMlp(std::unique_ptr<ColumnLinear> expand, std::unique_ptr<RowLinear> contract,
                   Count hidden, const Masks& masks, int layer)
    : expand_(std::move(expand)),
      contract_(std::move(contract)),
      hidden_(hidden),
      masks_(masks),
      layer_(layer) {}

Slice DenseMlp::input(MlpActivations& kept, const Rows& rows, Ledger& ledger) const {
  return expand_->input(kept.input, rows.count(), ledger);
}

void DenseMlp::forward(Backend& backend, Slice out, Slice base, MlpActivations& kept,
                       const Rows& rows, Ledger& ledger) const {
  for (Tensor* const tensor : {&kept.hidden, &kept.activated})
    ensure(*tensor, {rows.count(), hidden_}, out.dtype, ledger, MemoryUse::activations);
  expand_->forward_gelu(backend, kept.hidden.slice(), kept.activated.slice(), kept.input,
                        rows.count());
  contract_->forward(backend, out, base, kept.activated.slice(), rows.count(), mask(rows));
}

void DenseMlp::backward_input(Backend& backend, Slice dx, Slice dout, const MlpActivations& kept,
                              MlpGradients& gradients, const Rows& rows, Ledger& ledger,
                              const Meanwhile& meanwhile) const {
  ensure(gradients.hidden, {rows.count(), hidden_}, dx.dtype, ledger, MemoryUse::activations);
  const Slice dhidden = gradients.hidden.slice();
  contract_->backward_gelu(backend, dhidden, gradients.contracted, dout, kept.hidden.slice(),
                           rows.count(), mask(rows), ledger);
  expand_->backward_input(backend, dx, dhidden, rows.count(), meanwhile);
}

void DenseMlp::backward_weight(Backend& backend, Slice dout, const MlpActivations& kept,
                               const MlpGradients& gradients, const Rows& rows) const {
  contract_->backward_weight(backend, gradients.contracted, dout, kept.activated.slice(),
                             rows.count());
  expand_->backward_weight(backend, gradients.hidden.slice(), kept.input, rows.count());
}

}  // namespace lockstep
