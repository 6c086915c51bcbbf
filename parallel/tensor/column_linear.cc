#include "parallel/tensor/column_linear.h"

#include "models/layers/linear.h"
#include "parallel/tensor/gathered_input.h"

namespace lockstep {
namespace {

// lab: columns_of_rank
// This rank's part of a matrix with `out` columns: the same number on each rank, in order of rank.
Range columns_of_rank(const LayerSplit& split, Count out) {
  // lab: solution
  const Count own = out / split.ranks;
  return {.first = split.rank * own, .count = own};
  // lab: given
}
// lab: end

// lab: column_linear
Count width_of(const std::vector<Region::Columns>& columns) {
  Count width = 0;
  for (const Region::Columns& part : columns) width += part.range.count;
  return width;
}

class TensorColumnLinear final : public ColumnLinear {
 public:
  TensorColumnLinear(TensorRanks& ranks, Parameters& parameters, const std::string& name, Count in,
                     const std::vector<Region::Columns>& columns)
      : ranks_(ranks),
        linear_(parameters, name, in, width_of(columns), Initial::normal,
                column_regions(parameters, in, columns)) {}

  Slice input(Tensor& kept, Count rows, Ledger& ledger) const override {
    return gathered_input().place(linear_.column_input(kept), rows, linear_.parameters().dtype(),
                                  ledger);
  }

  Slice own_input(const Tensor& kept) const override {
    return gathered_input().own(linear_.column_input(kept));
  }

  void forward(Backend& backend, Slice out, const Tensor& given,
               const RowsPart& rows) const override {
    const Tensor& kept = linear_.column_input(given);
    // lab: solution
    gathered_input().with_all_rows(
        kept, rows, TensorRanks::forward_label, GatheredInput::Pass::forward,
        [&](Slice x, Slice of_out, const RowsPart& of_rows) {
          linear_.forward(backend, of_out, {}, x, of_rows);
        },
        out);
    // lab: given
  }

  void backward_input(Backend& backend, Slice dx, Slice dout, const RowsPart& rows,
                      const Meanwhile& meanwhile) const override {
    if (!passes_gradient()) return run(meanwhile);
    // lab: solution
    gathered_input().sum_gradient(
        dx, rows,
        [&](Slice partial, Slice of_dout, const RowsPart& of_rows) {
          linear_.backward_input(backend, partial, of_dout, of_rows);
        },
        dout, TensorRanks::backward_label, meanwhile);
    // lab: given
  }

  bool passes_gradient() const override { return linear_.passes_gradient(); }

  void backward_weight(Backend& backend, Slice dout, const Tensor& kept,
                       const RowsPart& rows) const override {
    if (!linear_.trains_matrix()) return;
    // lab: solution
    gathered_input().with_all_rows(
        kept, rows, TensorRanks::backward_label, GatheredInput::Pass::backward,
        [&](Slice x, Slice of_dout, const RowsPart& of_rows) {
          linear_.backward_matrix(backend, of_dout, x, of_rows);
        },
        dout);
    linear_.backward_bias(backend, dout, rows);
    // lab: given
  }

 private:
  GatheredInput gathered_input() const { return {ranks_, linear_.in()}; }

  TensorRanks& ranks_;
  Linear linear_;
};
// lab: end

}  // namespace

// lab: make_column_linear
std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in,
                                            std::vector<Region::Columns> columns) {
  return std::make_unique<TensorColumnLinear>(ranks, parameters, name, in, columns);
}

std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in, Count out) {
  return column_linear(
      ranks, parameters, name, in,
      {{.range = columns_of_rank(ranks.split(), out), .placement = parameters.divided(Axis::tp)}});
}
// lab: end

}  // namespace lockstep
