#include "models/layers/whole_layers.h"

#include "models/layers/linear.h"

namespace lockstep {
namespace {

class WholeColumnLinear final : public ColumnLinear {
 public:
  WholeColumnLinear(Parameters& parameters, const std::string& name, Count in, Count out)
      : linear_(parameters, name, in, out, Initial::normal) {}

  Slice input(Tensor& kept, Count rows, Ledger& ledger) const override {
    Tensor& x = linear_.column_input(kept);
    ensure(x, {rows, linear_.in()}, linear_.parameters().dtype(), ledger, MemoryUse::activations);
    return x.slice();
  }
  Slice own_input(const Tensor& kept) const override { return linear_.column_input(kept).slice(); }
  void forward(Backend& backend, Slice out, const Tensor& kept,
               const RowsPart& rows) const override {
    linear_.forward(backend, out, {}, own_input(kept), rows);
  }
  void forward_gelu(Backend& backend, Slice hidden, Slice activated, const Tensor& kept,
                    const RowsPart& rows) const override {
    linear_.forward_gelu(backend, hidden, activated, own_input(kept), rows);
  }
  void backward_input(Backend& backend, Slice dx, Slice dout, const RowsPart& rows,
                      const Meanwhile& meanwhile) const override {
    linear_.backward_input(backend, dx, dout, rows);
    run(meanwhile);
  }
  bool passes_gradient() const override { return linear_.passes_gradient(); }
  void backward_weight(Backend& backend, Slice dout, const Tensor& kept,
                       const RowsPart& rows) const override {
    linear_.backward_matrix(backend, dout, own_input(kept), rows);
    linear_.backward_bias(backend, dout, rows);
  }

 private:
  Linear linear_;
};

class WholeRowLinear final : public RowLinear {
 public:
  WholeRowLinear(Parameters& parameters, const std::string& name, Count in, Count out)
      : linear_(parameters, name, in, out, Initial::branch_end) {}

  Tensor& input(Tensor& kept) const override { return linear_.row_input(kept); }
  void forward(Backend& backend, Slice out, Slice base, Slice x, const RowsPart& rows,
               const Dropout& dropout) const override {
    if (dropout.rate == 0) return linear_.forward(backend, out, base, x, rows);
    linear_.product(backend, out, x, rows);
    backend.bias_dropout_add(out, base, out, linear_.bias_value(), rows, dropout);
  }
  void backward_input(Backend& backend, Slice dx, Tensor& product, Slice dout, const RowsPart& rows,
                      const Dropout& dropout, Ledger& ledger) const override {
    linear_.backward_input(backend, dx, undropped(backend, product, dout, rows, dropout, ledger),
                           rows);
  }
  void backward_gelu(Backend& backend, Slice dhidden, Tensor& product, Slice dout, Slice hidden,
                     const RowsPart& rows, const Dropout& dropout, Ledger& ledger) const override {
    linear_.backward_gelu(backend, dhidden,
                          undropped(backend, product, dout, rows, dropout, ledger), hidden, rows);
  }
  void backward_weight(Backend& backend, const Tensor& product, Slice dout, Slice x,
                       const RowsPart& rows) const override {
    const Slice dproduct = product.count() > 0 ? product.slice() : dout;
    linear_.backward_matrix(backend, dproduct, x, rows);
    linear_.backward_bias(backend, dproduct, rows);
  }
  bool passes_gradient() const override { return linear_.passes_gradient(); }
  int last_parameter() const override { return linear_.bias(); }

 private:
  // The gradient of the product: dout itself, or the part that dropout kept, in `product`.
  Slice undropped(Backend& backend, Tensor& product, Slice dout, const RowsPart& rows,
                  const Dropout& dropout, Ledger& ledger) const {
    if (dropout.rate == 0) return dout;
    ensure(product, {rows, linear_.out()}, dout.dtype, ledger, MemoryUse::activations);
    backend.dropout(product.slice(), dout, rows, dropout);
    return product.slice();
  }

  Linear linear_;
};

class WholeEmbedding final : public Embedding {
 public:
  WholeEmbedding(Parameters& parameters, const GptConfig& config)
      : parameters_(parameters),
        tokens_(parameters.add({.name = "wte.weight",
                                .shape = {config.vocabulary, config.width},
                                .initial = Initial::normal})),
        positions_(parameters.add({.name = "wpe.weight",
                                   .shape = {config.context, config.width},
                                   .initial = Initial::normal})) {}

  void forward(Backend& backend, Slice out, std::span<const std::int32_t> inputs, const Rows& rows,
               const Dropout& dropout) const override {
    backend.embedding(out, parameters_.value(tokens_), 0, inputs);
    backend.add_positions(out, parameters_.value(positions_), rows.places(0), rows.count());
    if (dropout.rate > 0) backend.dropout(out, out, rows.count(), dropout);
  }
  void backward(Backend& backend, Slice dout, std::span<const std::int32_t> inputs,
                const Rows& rows, const Dropout& dropout) const override {
    if (parameters_.are_frozen()) return;
    if (dropout.rate > 0) backend.dropout(dout, dout, rows.count(), dropout);
    backend.embedding_backward(parameters_.gradient(tokens_), 0, dout, inputs);
    backend.positions_backward(parameters_.gradient(positions_), dout, rows.places(0),
                               rows.count());
  }
  int tokens() const override { return tokens_; }
  int positions() const override { return positions_; }

 private:
  Parameters& parameters_;
  int tokens_, positions_;
};

class WholeHead final : public Head {
 public:
  WholeHead(Parameters& parameters, const GptConfig& config, const Embedding* tied)
      : parameters_(parameters),
        vocabulary_(config.vocabulary),
        width_(config.width),
        weight_(tied ? tied->tokens()
                     : parameters.add({.name = "lm_head.weight",
                                       .shape = {vocabulary_, width_},
                                       .initial = Initial::normal,
                                       .tied_to = "wte.weight"})) {}

  Slice input(HeadStash& stash, Count rows, Ledger& ledger) const override {
    Tensor& x = normed(stash);
    ensure(x, {rows, width_}, parameters_.dtype(), ledger, MemoryUse::activations);
    return x.slice();
  }
  double loss(Backend& backend, HeadStash& stash, std::span<const std::int32_t> targets,
              double scale, double smoothing, Ledger& ledger) const override {
    const Count n = std::ssize(targets);
    ensure(stash.logits, {n, padded_columns(vocabulary_, parameters_.dtype())}, parameters_.dtype(),
           ledger, MemoryUse::activations);
    const Slice logits = stash.logits.slice();
    backend.gemm({normed(stash).slice(), n, width_},
                 Matrix(parameters_.value(weight_), vocabulary_, width_).t(),
                 without_padding(logits, n, vocabulary_), 0);
    return backend.cross_entropy(logits, targets, vocabulary_, scale, smoothing);
  }
  void backward_input(Backend& backend, Slice dx, const HeadStash& stash, Count rows,
                      const Meanwhile& meanwhile) const override {
    backend.gemm(without_padding(stash.logits.slice(), rows, vocabulary_),
                 {parameters_.value(weight_), vocabulary_, width_}, {dx, rows, width_}, 0);
    run(meanwhile);
  }
  void backward_weight(Backend& backend, const HeadStash& stash, Count rows) const override {
    if (parameters_.are_frozen()) return;
    // For a tied embedding this is the first part; backward of the embedding adds the second.
    backend.gemm(without_padding(stash.logits.slice(), rows, vocabulary_).t(),
                 {stash.normed.slice(), rows, width_},
                 {parameters_.gradient(weight_), vocabulary_, width_}, 1);
  }
  int parameter() const override { return weight_; }

 private:
  Tensor& normed(HeadStash& stash) const {
    return parameters_.are_frozen() ? parameters_.adapters()->column_input() : stash.normed;
  }

  Parameters& parameters_;
  Count vocabulary_, width_;
  int weight_;
};

class WholeLayers final : public LayerFactory {
 public:
  const LayerSplit& split() const override { return split_; }
  std::unique_ptr<ColumnLinear> queries_keys_values(Parameters& parameters, const std::string& name,
                                                    const GptConfig& config) const override {
    return column(parameters, name, config.width, config.qkv_width());
  }
  std::unique_ptr<ColumnLinear> column(Parameters& parameters, const std::string& name, Count in,
                                       Count out) const override {
    return std::make_unique<WholeColumnLinear>(parameters, name, in, out);
  }
  std::unique_ptr<RowLinear> row(Parameters& parameters, const std::string& name, Count in,
                                 Count out) const override {
    return std::make_unique<WholeRowLinear>(parameters, name, in, out);
  }
  std::unique_ptr<Embedding> embedding(Parameters& parameters,
                                       const GptConfig& config) const override {
    return std::make_unique<WholeEmbedding>(parameters, config);
  }
  std::unique_ptr<Head> head(Parameters& parameters, const GptConfig& config,
                             const Embedding* tied) const override {
    return std::make_unique<WholeHead>(parameters, config, tied);
  }

 private:
  LayerSplit split_;
};

}  // namespace

const LayerFactory& whole_layers() {
  static const WholeLayers layers;
  return layers;
}

}  // namespace lockstep
