// The layers of a GPT that may be split over ranks, and the factory that makes them. One rank uses
// the whole layers of whole_layers.h; parallel/tensor implements the same interfaces.
//
// A micro-batch has N rows, n of them this rank's outside of split layers: n = N, or N / t with
// sequence parallelism. See LayerSplit.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/backend.h"
#include "models/data/rows.h"
#include "models/gpt_config.h"
#include "models/layers/experts.h"
#include "models/layers/layer_norm.h"
#include "models/layers/layer_stash.h"
#include "models/layers/masks.h"
#include "models/layers/meanwhile.h"
#include "models/parameters.h"
#include "models/routing.h"
#include "models/split.h"

namespace lockstep {

// x W + b; this rank computes some columns. The gradient of x is summed over the ranks.
class ColumnLinear {
 public:
  virtual ~ColumnLinear() = default;
  // Memory for x[n, in] in `kept`, for the caller to fill before forward(); or, if backward does not
  // need x, in memory that the next such layer takes.
  virtual Slice input(Tensor& kept, Count rows, Ledger& ledger) const = 0;
  // The same memory afterwards.
  virtual Slice own_input(const Tensor& kept) const { return kept.slice(); }
  // out[N, own columns]
  virtual void forward(Backend& backend, Slice out, const Tensor& kept,
                       const RowsPart& rows) const = 0;
  // hidden[N, own columns], and activated = GELU(hidden)
  virtual void forward_gelu(Backend& backend, Slice hidden, Slice activated, const Tensor& kept,
                            const RowsPart& rows) const {
    forward(backend, hidden, kept, rows);
    backend.gelu(activated, hidden);
  }
  // dx[n, in], unless the input needs no gradient.
  virtual void backward_input(Backend& backend, Slice dx, Slice dout, const RowsPart& rows,
                              const Meanwhile& meanwhile) const = 0;
  // Whether the input needs a gradient: anything below the layer is trained.
  virtual bool passes_gradient() const { return true; }
  virtual void backward_weight(Backend& backend, Slice dout, const Tensor& kept,
                               const RowsPart& rows) const = 0;
};

// dropout(x W + b); this rank has some columns of x, and the product is summed over the ranks.
class RowLinear {
 public:
  virtual ~RowLinear() = default;
  // Where x lies: `kept`, or, if backward_weight() does not read x, memory that the next such layer
  // takes.
  virtual Tensor& input(Tensor& kept) const { return kept; }
  // out[n, out] = base + dropout(x W + b), of x[N, own columns]
  virtual void forward(Backend& backend, Slice out, Slice base, Slice x, const RowsPart& rows,
                       const Dropout& dropout) const = 0;
  // dx[N, own columns], given dout[n, out]. Keeps the gradient of x W in `product`, unless it is
  // dout itself, for backward_weight(). Computes no dx if the input needs no gradient.
  virtual void backward_input(Backend& backend, Slice dx, Tensor& product, Slice dout,
                              const RowsPart& rows, const Dropout& dropout,
                              Ledger& ledger) const = 0;
  // The same for x = GELU(hidden): dhidden[N, own columns], the gradient of hidden
  virtual void backward_gelu(Backend& backend, Slice dhidden, Tensor& product, Slice dout,
                             Slice hidden, const RowsPart& rows, const Dropout& dropout,
                             Ledger& ledger) const {
    backward_input(backend, dhidden, product, dout, rows, dropout, ledger);
    backend.gelu_backward(dhidden, dhidden, hidden);
  }
  virtual void backward_weight(Backend& backend, const Tensor& product, Slice dout, Slice x,
                               const RowsPart& rows) const = 0;
  // As of a ColumnLinear.
  virtual bool passes_gradient() const { return true; }
  virtual int last_parameter() const = 0;
};

// What an attention keeps of a forward pass. Selective recomputation drops `output`, and computes it
// again from `operands`.
struct AttentionStash {
  LayerStash operands, output;
};

// base + dropout(projection of the attention over x). backward_input() leaves in `gradients` what
// backward_weight() needs.
class Attention {
 public:
  virtual ~Attention() = default;
  // Memory for x[n, C] in `kept`, for the caller to fill before forward().
  virtual Slice input(AttentionStash& kept, const Rows& rows, Ledger& ledger) const = 0;
  // out[n, C]
  virtual void forward(Backend& backend, Slice out, Slice base, AttentionStash& kept,
                       const Rows& rows, Ledger& ledger) const = 0;
  // Computes kept.output from kept.operands: a part of forward(), and all that is recomputed if only
  // the output was dropped.
  virtual void attend(Backend& backend, AttentionStash& kept, const Rows& rows,
                      Ledger& ledger) const = 0;
  // dx[n, C], given dout[n, C]
  virtual void backward_input(Backend& backend, Slice dx, Slice dout, const AttentionStash& kept,
                              LayerStash& gradients, const Rows& rows, Ledger& ledger,
                              const Meanwhile& meanwhile) const = 0;
  // Adds to the gradients of the weights, after backward_input() or as its `meanwhile`.
  virtual void backward_weight(Backend& backend, Slice dout, const AttentionStash& kept,
                               const LayerStash& gradients, const Rows& rows) const = 0;
  // Whether its input needs a gradient: otherwise backward_input() writes none.
  virtual bool passes_gradient() const { return true; }
};

// What an mlp keeps of a forward pass. Full recomputation drops the tensors, but not what a router
// has chosen.
struct MlpStash {
  LayerStash tensors;
  Routing routing;
};

// base + dropout(mlp(x)). The same stashes.
class Mlp {
 public:
  virtual ~Mlp() = default;
  // Memory for x[n, C] in `kept`, for the caller to fill before forward().
  virtual Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const = 0;
  // out[n, C]
  virtual void forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
                       Ledger& ledger) const = 0;
  // dx[n, C], given dout[n, C].
  virtual void backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                              LayerStash& gradients, const Rows& rows, Ledger& ledger,
                              const Meanwhile& meanwhile) const = 0;
  // Adds to the gradients of the weights, after backward_input() or as its `meanwhile`.
  virtual void backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                               const LayerStash& gradients, const Rows& rows) const = 0;
  virtual int last_parameter() const = 0;
  // As of an Attention.
  virtual bool passes_gradient() const { return true; }
  // Its experts, if their parameters are apart; null: all parameters are together.
  virtual const Experts* divided_experts() const { return nullptr; }
  // What chooses its experts; null if it has none.
  virtual Router* router() { return nullptr; }
};

// dropout(tokens[input] + positions[place])
class Embedding {
 public:
  virtual ~Embedding() = default;
  // out[n, C]
  virtual void forward(Backend& backend, Slice out, std::span<const std::int32_t> inputs,
                       const Rows& rows, const Dropout& dropout) const = 0;
  // Adds to the gradients. Overwrites dout[n, C].
  virtual void backward(Backend& backend, Slice dout, std::span<const std::int32_t> inputs,
                        const Rows& rows, const Dropout& dropout) const = 0;
  virtual int tokens() const = 0;
  virtual int positions() const = 0;
};

// The head's tensors: its input, the normed input, and the logits, which become their gradient.
struct HeadStash {
  Tensor input, normed, logits;  // [n, C], [n or N, C], [N, padded_columns(own columns)]
  LayerNormStash norm;
};

// Logits without the padding of their rows.
inline Matrix without_padding(Slice logits, Count rows, Count columns) {
  return Matrix(logits, rows, logits.count / rows).columns_from(0, columns);
}

// The logits, some columns of them on this rank, and their loss.
class Head {
 public:
  virtual ~Head() = default;
  // Memory for x[n, C], in `stash.normed` if backward needs it, for the caller to fill before loss().
  virtual Slice input(HeadStash& stash, Count rows, Ledger& ledger) const = 0;
  // The sum of all token losses, the same on every rank, with label smoothing. The logits become
  // their gradient times `scale`.
  virtual double loss(Backend& backend, HeadStash& stash, std::span<const std::int32_t> targets,
                      double scale, double smoothing, Ledger& ledger) const = 0;
  // dx[n, C]
  virtual void backward_input(Backend& backend, Slice dx, const HeadStash& stash, Count rows,
                              const Meanwhile& meanwhile) const = 0;
  virtual void backward_weight(Backend& backend, const HeadStash& stash, Count rows) const = 0;
  virtual int parameter() const = 0;
};

class LayerFactory {
 public:
  virtual ~LayerFactory() = default;
  virtual const LayerSplit& split() const = 0;

  // Each registers this rank's part of its parameters.
  virtual std::unique_ptr<ColumnLinear> queries_keys_values(Parameters& parameters,
                                                            const std::string& name,
                                                            const GptConfig& config) const = 0;
  virtual std::unique_ptr<ColumnLinear> column(Parameters& parameters, const std::string& name,
                                               Count in, Count out) const = 0;
  virtual std::unique_ptr<RowLinear> row(Parameters& parameters, const std::string& name, Count in,
                                         Count out) const = 0;
  virtual std::unique_ptr<Embedding> embedding(Parameters& parameters,
                                               const GptConfig& config) const = 0;
  // Tied to the embedding if the same rank has it.
  virtual std::unique_ptr<Head> head(Parameters& parameters, const GptConfig& config,
                                     const Embedding* tied) const = 0;
  // The experts of a layer. Default: all of them, whole.
  virtual std::unique_ptr<Experts> experts(Parameters& parameters, const std::string& name,
                                           const GptConfig& config) const;
  // For layer `layer`. Default: the attention of self_attention.h and the mlp of dense_mlp.h or, if the
  // layer has experts, of mixture.h, built from this factory's layers.
  virtual std::unique_ptr<Attention> attention(Parameters& parameters, int layer,
                                               const GptConfig& config,
                                               const MaskOptions& masks) const;
  virtual std::unique_ptr<Mlp> mlp(Parameters& parameters, int layer, const GptConfig& config,
                                   const MaskOptions& masks) const;
};

// All layers of another factory, which must outlive it; a derived one replaces some of them.
class WrappedLayers : public LayerFactory {
 public:
  explicit WrappedLayers(const LayerFactory& inner) : inner_(inner) {}

  const LayerSplit& split() const override { return inner_.split(); }
  std::unique_ptr<ColumnLinear> queries_keys_values(Parameters& parameters, const std::string& name,
                                                    const GptConfig& config) const override {
    return inner_.queries_keys_values(parameters, name, config);
  }
  std::unique_ptr<ColumnLinear> column(Parameters& parameters, const std::string& name, Count in,
                                       Count out) const override {
    return inner_.column(parameters, name, in, out);
  }
  std::unique_ptr<RowLinear> row(Parameters& parameters, const std::string& name, Count in,
                                 Count out) const override {
    return inner_.row(parameters, name, in, out);
  }
  std::unique_ptr<Embedding> embedding(Parameters& parameters,
                                       const GptConfig& config) const override {
    return inner_.embedding(parameters, config);
  }
  std::unique_ptr<Head> head(Parameters& parameters, const GptConfig& config,
                             const Embedding* tied) const override {
    return inner_.head(parameters, config, tied);
  }
  std::unique_ptr<Attention> attention(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const override {
    return inner_.attention(parameters, layer, config, masks);
  }
  std::unique_ptr<Experts> experts(Parameters& parameters, const std::string& name,
                                   const GptConfig& config) const override {
    return inner_.experts(parameters, name, config);
  }
  std::unique_ptr<Mlp> mlp(Parameters& parameters, int layer, const GptConfig& config,
                           const MaskOptions& masks) const override {
    return inner_.mlp(parameters, layer, config, masks);
  }

 protected:
  const LayerFactory& inner() const { return inner_; }

 private:
  const LayerFactory& inner_;
};

// The parts from which the attention of layer `layer` is built.
struct AttentionParts {
  std::unique_ptr<ColumnLinear> queries_keys_values;
  std::unique_ptr<RowLinear> projection;
  Count heads, kv_heads, head_size;  // on this rank
  Masks masks;
  int layer;
};
AttentionParts attention_parts(const LayerFactory& factory, Parameters& parameters, int layer,
                               const GptConfig& config, const MaskOptions& masks);

}  // namespace lockstep
