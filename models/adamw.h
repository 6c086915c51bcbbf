// AdamW over flat parameters. Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#pragma once

#include <span>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

class AdamW {
 public:
  // For the elements `values`, which begin at `first` in a model's flat buffer. The range may begin
  // and end inside a parameter. `list` must outlive this. Keeps two moments of the values' type,
  // charged as optimizer. For values of 16 bits the moments are f32, and an f32 copy of the values
  // takes the steps.
  AdamW(std::span<const Parameter> list, Count first, Slice values, Slice gradients,
        const AdamWOptions& options, Backend& backend, Ledger& ledger);
  // For all parameters.
  AdamW(Parameters& parameters, const AdamWOptions& options, Backend& backend, Ledger& ledger)
      : AdamW(parameters.list(), 0, parameters.values(), parameters.gradients(), options, backend,
              ledger) {}
  // One step with gradients times `gradient_scale` (the clipping factor). Matrices decay, vectors do
  // not.
  void step(double learning_rate, double gradient_scale = 1.0);

 private:
  std::span<const Parameter> list_;
  Count first_;
  Slice values_, gradients_;
  AdamWOptions options_;
  Backend& backend_;
  Tensor master_;  // f32 copy of values of 16 bits
  Tensor first_moment_, second_moment_;
  std::int64_t steps_ = 0;
};

// Bytes that AdamW keeps per parameter of that type.
Count optimizer_bytes(DType dtype);

}  // namespace lockstep
