#include "parallel/tensor/row_linear.h"

#include "models/layers/linear.h"

namespace lockstep {
namespace {

// lab: rows_of_rank
// This rank's part of a matrix with `in` rows, one for each of its columns of x.
Range rows_of_rank(const LayerSplit& split, Count in) {
  // lab: solution
  const Count own = in / split.ranks;
  return {.first = split.rank * own, .count = own};
  // lab: given
}
// lab: end

// lab: row_linear
class TensorRowLinear final : public RowLinear {
 public:
  TensorRowLinear(TensorRanks& ranks, Parameters& parameters, const std::string& name, Count in,
                  Count out)
      : ranks_(ranks),
        linear_(parameters, name, rows_of_rank(ranks.split(), in).count, out, Initial::branch_end,
                row_regions(parameters, rows_of_rank(ranks.split(), in), out)) {}

  Tensor& input(Tensor& kept) const override { return linear_.row_input(kept); }

  void forward(Backend& backend, Slice out, Slice base, Slice x, const RowsPart& rows,
               const Dropout& dropout) const override {
    // lab: solution
    const bool separate = ranks_.split().by_sequence;
    const Slice product =
        separate ? ranks_.scratch(TensorRanks::Use::partial, rows, linear_.out(), out.dtype) : out;
    if (separate && ranks_.overlaps()) {
      const Chunks of_product(product, ranks_.split().ranks), of_x(x, ranks_.split().ranks);
      const Count each = rows / ranks_.split().ranks;
      ranks_.sum_in_parts(product, TensorRanks::forward_label, [&](int part) {
        linear_.product(backend, of_product[part], of_x[part], rows.part(part * each, each));
      });
    } else {
      linear_.product(backend, product, x, rows);
      ranks_.sum(product, TensorRanks::forward_label);
    }
    backend.bias_dropout_add(out, base, ranks_.own_rows(product), linear_.bias_value(),
                             ranks_.split().outer_rows(rows), dropout);
    // lab: given
  }

  void backward_input(Backend& backend, Slice dx, Tensor& product, Slice dout, const RowsPart& rows,
                      const Dropout& dropout, Ledger& ledger) const override {
    // lab: solution
    const LayerSplit& split = ranks_.split();
    if (!split.by_sequence && dropout.rate == 0)
      return linear_.backward_input(backend, dx, dout, rows);

    ensure(product, {rows, linear_.out()}, dout.dtype, ledger, MemoryUse::activations);
    const Slice own = ranks_.own_rows(product.slice());
    if (dropout.rate > 0)
      backend.dropout(own, dout, split.outer_rows(rows), dropout);
    else
      own.device->copy(own, dout);
    if (!split.by_sequence || !ranks_.overlaps()) {
      if (split.by_sequence) ranks_.gather(product.slice(), TensorRanks::backward_label);
      return linear_.backward_input(backend, dx, product.slice(), rows);
    }
    const Chunks of_dx(dx, split.ranks), of_product(product.slice(), split.ranks);
    const Count each = rows / split.ranks;
    ranks_.gather_in_parts(product.slice(), TensorRanks::backward_label, [&](int part) {
      linear_.backward_input(backend, of_dx[part], of_product[part], rows.part(part * each, each));
    });
    // lab: given
  }

  void backward_weight(Backend& backend, const Tensor& product, Slice dout, Slice x,
                       const RowsPart& rows) const override {
    // lab: solution
    const Slice dproduct = product.count() > 0 ? product.slice() : dout;
    linear_.backward_matrix(backend, dproduct, x, rows);
    linear_.backward_bias(backend, ranks_.own_rows(dproduct), ranks_.split().outer_rows(rows));
    // lab: given
  }

  bool passes_gradient() const override { return linear_.passes_gradient(); }
  int last_parameter() const override { return linear_.bias(); }

 private:
  TensorRanks& ranks_;
  Linear linear_;
};
// lab: end

}  // namespace

// lab: make_row_linear
std::unique_ptr<RowLinear> row_linear(TensorRanks& ranks, Parameters& parameters,
                                      const std::string& name, Count in, Count out) {
  return std::make_unique<TensorRowLinear>(ranks, parameters, name, in, out);
}
// lab: end

}  // namespace lockstep
