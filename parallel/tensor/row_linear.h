// A linear layer split by the rows of its matrix: Y = sum over the ranks of X_i A_i, then + b, added
// once. g comes after the product; dX_i = dY A_i^T needs nothing from the other ranks.
#pragma once

#include <memory>
#include <string>

#include "parallel/tensor/ranks.h"

namespace lockstep {

std::unique_ptr<RowLinear> row_linear(TensorRanks& ranks, Parameters& parameters,
                                      const std::string& name, Count in, Count out);

}  // namespace lockstep
