// A linear layer split by the columns of its matrix: Y_i = X A_i + b_i. Every rank needs all of X,
// so f comes before it, and dX = sum over the ranks of dY_i A_i^T.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/tensor/ranks.h"

namespace lockstep {

// This rank has the columns of the layer that `columns` lists, next to each other.
std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in,
                                            std::vector<Region::Columns> columns);
// Every rank has the same number of the layer's `out` columns.
std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in, Count out);

}  // namespace lockstep
