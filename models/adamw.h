// AdamW over flat parameters. Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#pragma once

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

class AdamW {
 public:
  // Keeps two moments of the parameters' type, charged as optimizer.
  AdamW(Parameters& parameters, const AdamWOptions& options, Ledger& ledger);
  // One step with gradients times `gradient_scale` (the factor of clipping). Matrices decay,
  // vectors do not.
  void step(double learning_rate, double gradient_scale = 1.0);

 private:
  Parameters& parameters_;
  AdamWOptions options_;
  Tensor first_moment_, second_moment_;
  std::int64_t steps_ = 0;
};

// Sum of squares in f64; the same bits for the same input, whatever the number of threads.
double squared_norm(Slice gradients);

}  // namespace lockstep
