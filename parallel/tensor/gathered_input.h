// The input of a layer that is split by columns: this rank's rows of it are kept, and all rows are
// gathered where a product needs them (f forward); the gradient goes the other way (f backward).
#pragma once

#include "parallel/tensor/ranks.h"

namespace lockstep {

class GatheredInput {
 public:
  GatheredInput(TensorRanks& ranks, Count columns) : ranks_(ranks), columns_(columns) {}

  // Memory in `kept` for this rank's rows. Where the gathered input is kept, it has room for all.
  Slice place(Tensor& kept, Count rows, DType dtype, Ledger& ledger) const;

  // Calls product(rows of the input, the same rows of `other`, their number), once with all of
  // them, or part by part while others travel. What was kept of the forward pass is not gathered
  // again.
  enum class Pass : std::uint8_t { forward, backward };
  using Product = std::function<void(Slice x, Slice other, Count rows)>;
  void with_all_rows(const Tensor& kept, Count rows, const char* label, Pass pass,
                     const Product& product, Slice other) const;

  // dx = the sum over the ranks of product(rows of the gradient to be written, the same rows of
  // `other`, their number).
  void sum_gradient(Slice dx, Count rows, const Product& product, Slice other, const char* label,
                    const Meanwhile& meanwhile) const;

 private:
  TensorRanks& ranks_;
  Count columns_;
};

}  // namespace lockstep
