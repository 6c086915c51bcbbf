#include "models/layers/layer_norm.h"

#include "models/ops/narrow_types.h"

namespace lockstep {

LayerNorm::LayerNorm(Parameters& parameters, const std::string& name, Count width, double epsilon)
    : parameters_(parameters),
      epsilon_(epsilon),
      weight_(
          parameters.add({.name = name + ".weight", .shape = {width}, .initial = Initial::ones})),
      bias_(parameters.add({.name = name + ".bias", .shape = {width}})) {}

void LayerNorm::forward(Backend& backend, Slice out, LayerNormStash& stash, Slice x, Count rows,
                        Ledger& ledger) const {
  for (Tensor* statistic : {&stash.mean, &stash.rstd})
    ensure(*statistic, {rows}, statistics_type(x.dtype), ledger, MemoryUse::activations);
  backend.layer_norm(out, stash.mean.slice(), stash.rstd.slice(), x, parameters_.value(weight_),
                     parameters_.value(bias_), rows, epsilon_);
}

void LayerNorm::backward_input(Backend& backend, Slice dx, Slice base, Slice dout,
                               const LayerNormStash& stash, Slice x, Count rows) const {
  backend.layer_norm_backward_input(dx, base, dout, x, stash.mean.slice(), stash.rstd.slice(),
                                    parameters_.value(weight_), rows);
}

void LayerNorm::backward_weight(Backend& backend, Slice dout, const LayerNormStash& stash, Slice x,
                                Count rows) const {
  if (parameters_.are_frozen()) return;
  backend.layer_norm_backward_weight(parameters_.gradient(weight_), parameters_.gradient(bias_),
                                     dout, x, stash.mean.slice(), stash.rstd.slice(), rows);
}

}  // namespace lockstep
