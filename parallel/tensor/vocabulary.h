// The vocabulary split over ranks. Each has some rows of the token embedding, and computes the
// logits of those tokens. No rank sees all logits of a row; three of their statistics suffice.
//
//   out       = sum over the ranks of (the token's row if it is here, else 0)
//   highest   = max over the ranks               E = sum of exp(z - highest) over the ranks
//   loss      = log E - (z[target] - highest)    dz = exp(z - highest) / E - (1 at the target)
//
// With label smoothing, the sum of z over the whole vocabulary is also exchanged: a mean over one
// rank's logits would give every rank a different loss.
#pragma once

#include <memory>

#include "parallel/tensor/ranks.h"

namespace lockstep {

std::unique_ptr<Embedding> vocabulary_embedding(TensorRanks& ranks, Parameters& parameters,
                                                const GptConfig& config);
std::unique_ptr<Head> vocabulary_head(TensorRanks& ranks, Parameters& parameters,
                                      const GptConfig& config, const Embedding* tied);

}  // namespace lockstep
