#include "parallel/tensor/column_linear.h"

#include "models/layers/linear.h"
#include "parallel/tensor/gathered_input.h"

namespace lockstep {
namespace {

Count width_of(const std::vector<Region::Columns>& columns) {
  Count width = 0;
  for (const Region::Columns& part : columns) width += part.range.count;
  return width;
}

LinearRegions regions(Count in, const std::vector<Region::Columns>& columns) {
  return {.weight = {.rows = {0, in}, .columns = columns},
          .bias = {.rows = {0, 1}, .columns = columns}};
}

class TensorColumnLinear final : public ColumnLinear {
 public:
  TensorColumnLinear(TensorRanks& ranks, Parameters& parameters, const std::string& name, Count in,
                     const std::vector<Region::Columns>& columns)
      : input_(ranks, in),
        linear_(parameters, name, in, width_of(columns), Initial::normal, regions(in, columns)) {}

  Slice input(Tensor& kept, Count rows, Ledger& ledger) const override {
    return input_.place(kept, rows, linear_.parameters().dtype(), ledger);
  }

  void forward(Backend& backend, Slice out, const Tensor& kept, Count rows) const override {
    input_.with_all_rows(
        kept, rows, TensorRanks::forward_label, GatheredInput::Pass::forward,
        [&](Slice x, Slice of_out, Count of_rows) {
          linear_.forward(backend, of_out, {}, x, of_rows);
        },
        out);
  }

  void backward_input(Backend& backend, Slice dx, Slice dout, Count rows,
                      const Meanwhile& meanwhile) const override {
    input_.sum_gradient(
        dx, rows,
        [&](Slice partial, Slice of_dout, Count of_rows) {
          linear_.backward_input(backend, partial, of_dout, of_rows);
        },
        dout, TensorRanks::backward_label, meanwhile);
  }

  void backward_weight(Backend& backend, Slice dout, const Tensor& kept,
                       Count rows) const override {
    input_.with_all_rows(
        kept, rows, TensorRanks::backward_label, GatheredInput::Pass::backward,
        [&](Slice x, Slice of_dout, Count of_rows) {
          linear_.backward_matrix(backend, of_dout, x, of_rows);
        },
        dout);
    linear_.backward_bias(backend, dout, rows);
  }

 private:
  GatheredInput input_;
  Linear linear_;
};

}  // namespace

std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in,
                                            std::vector<Region::Columns> columns) {
  return std::make_unique<TensorColumnLinear>(ranks, parameters, name, in, columns);
}

}  // namespace lockstep
