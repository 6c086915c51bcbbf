// Layer norm with a learned scale and shift. Ba, Kiros and Hinton, "Layer normalization", 2016.
#pragma once

#include <string>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

// The statistics of each row, which backward needs from the forward pass.
struct LayerNormStash {
  Tensor mean, rstd;
};

class LayerNorm {
 public:
  // Registers name.weight [width] and name.bias [width].
  LayerNorm(Parameters& parameters, const std::string& name, Count width, double epsilon);

  void forward(Backend& backend, Slice out, LayerNormStash& stash, Slice x, Count rows,
               Ledger& ledger) const;
  // dx = base + the gradient through the norm. base may be empty; dx may be base.
  void backward_input(Backend& backend, Slice dx, Slice base, Slice dout,
                      const LayerNormStash& stash, Slice x, Count rows) const;
  void backward_weight(Backend& backend, Slice dout, const LayerNormStash& stash, Slice x,
                       Count rows) const;

  int weight() const { return weight_; }
  int bias() const { return bias_; }

 private:
  Parameters& parameters_;
  double epsilon_;
  int weight_, bias_;
};

}  // namespace lockstep
