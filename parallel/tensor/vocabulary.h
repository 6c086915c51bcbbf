// The vocabulary split over ranks: each has some rows of the token embedding, and computes the
// logits of those tokens. No rank sees all logits of a row; three of their statistics are enough.
//
//   out       = sum over the ranks of (the token's row where it is here, else 0)
//   highest   = max over the ranks               E = sum of exp(z - highest) over the ranks
//   loss      = log E - (z[target] - highest)    dz = exp(z - highest) / E - (1 at the target)
//
// With labels smoothed, the sum over the whole vocabulary of z joins what is summed: a mean over
// one rank's logits would give every rank another loss.
#pragma once

#include <memory>

#include "parallel/tensor/ranks.h"

namespace lockstep {

std::unique_ptr<Embedding> vocabulary_embedding(TensorRanks& ranks, Parameters& parameters,
                                                const GptConfig& config);
std::unique_ptr<Head> vocabulary_head(TensorRanks& ranks, Parameters& parameters,
                                      const GptConfig& config, const Embedding* tied);

}  // namespace lockstep
