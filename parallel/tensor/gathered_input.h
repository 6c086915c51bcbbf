// The input of a layer that is split by columns. Each rank keeps its own rows, and gathers all rows
// when a product needs them (f forward); the gradient is scattered in reverse (f backward).
#pragma once

#include "parallel/tensor/ranks.h"

namespace lockstep {

class GatheredInput {
 public:
  GatheredInput(TensorRanks& ranks, Count columns) : ranks_(ranks), columns_(columns) {}

  // Memory in `kept` for this rank's rows. Has room for all rows if the gathered input is kept.
  Slice place(Tensor& kept, Count rows, DType dtype, Ledger& ledger) const;
  // This rank's rows there.
  Slice own(const Tensor& kept) const;

  // Calls product(some rows of the input, the same rows of `other`, which these are), once with all rows,
  // or part by part while others are exchanged. Does not gather again rows that were kept in forward.
  enum class Pass : std::uint8_t { forward, backward };
  using Product = std::function<void(Slice x, Slice other, const RowsPart& rows)>;
  void with_all_rows(const Tensor& kept, const RowsPart& rows, const char* label, Pass pass,
                     const Product& product, Slice other) const;

  // dx = the sum over the ranks of product(destination rows of the gradient, the same rows of
  // `other`, which these are).
  void sum_gradient(Slice dx, const RowsPart& rows, const Product& product, Slice other,
                    const char* label, const Meanwhile& meanwhile) const;

 private:
  TensorRanks& ranks_;
  Count columns_;
};

}  // namespace lockstep
