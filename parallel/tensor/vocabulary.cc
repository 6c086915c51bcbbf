#include "parallel/tensor/vocabulary.h"

#include <algorithm>

#include "models/ops/narrow_types.h"
#include "parallel/tensor/gathered_input.h"

namespace lockstep {
namespace {

// lab: tokens
// This rank's tokens of the whole vocabulary.
struct Tokens {
  Count whole, first, count;

  Tokens(const LayerSplit& split, Count vocabulary)
      : whole(vocabulary),
        // lab: solution
        first(split.vocabulary(vocabulary) * split.rank),
        // lab: given
        count(split.vocabulary(vocabulary)) {}

  // Without padding.
  // lab: solution
  Count real() const { return std::clamp<Count>(whole - first, 0, count); }
  // lab: given
  std::int32_t first_token() const { return static_cast<std::int32_t>(first); }
  int add(Parameters& parameters, const char* name, Count width, const char* tied_to = "") const {
    return parameters.add(
        {.name = name,
         .shape = {count, width},
         .initial = Initial::normal,
         .region = {.rows = {first, count},
                    .columns = {{.range = {0, width}, .placement = parameters.divided(Axis::tp)}}},
         .tied_to = tied_to,
         .padding = (count - real()) * width});
  }
};
// lab: end

// lab: head
class VocabularyHead final : public Head {
 public:
  VocabularyHead(TensorRanks& ranks, Parameters& parameters, const GptConfig& config,
                 const Embedding* tied)
      : ranks_(ranks),
        parameters_(parameters),
        input_(ranks, config.width),
        width_(config.width),
        own_(ranks.split(), config.vocabulary),
        weight_(tied ? tied->tokens()
                     : own_.add(parameters, "lm_head.weight", width_, "wte.weight")) {}

  Slice input(HeadStash& stash, Count rows, Ledger& ledger) const override {
    return input_.place(normed(stash), rows, parameters_.dtype(), ledger);
  }

  double loss(Backend& backend, HeadStash& stash, std::span<const std::int32_t> targets,
              double scale, double smoothing, Ledger& ledger) const override {
    const Count rows = std::ssize(targets);
    ensure(stash.logits, {rows, padded_columns(own_.count, parameters_.dtype())},
           parameters_.dtype(), ledger, MemoryUse::activations);
    const Slice logits = stash.logits.slice();
    input_.with_all_rows(
        normed(stash), rows, TensorRanks::head_label, GatheredInput::Pass::forward,
        [&](Slice x, Slice of_logits, Count of_rows) {
          backend.gemm({x, of_rows, width_},
                       Matrix(parameters_.value(weight_), own_.count, width_).t(),
                       without_padding(of_logits, of_rows, own_.count), 0);
        },
        logits);

    // lab: solution
    const Count numbers = smoothing > 0 ? 4 : 3;
    const Slice statistics =
        ranks_.scratch(TensorRanks::Use::statistics, rows, numbers, statistics_type(logits.dtype));
    const Slice highest = statistics.first(rows);
    const Slice sums = statistics.part(rows, rows * (numbers - 1));
    backend.softmax_highest(highest, logits, own_.real());
    ranks_.combine(highest, ReduceOp::max);
    backend.softmax_sums(sums, logits, highest, targets, own_.first_token(), own_.real());
    ranks_.combine(sums, ReduceOp::sum);
    return backend.softmax_gradient(logits, sums, targets, own_.first_token(), own_.real(),
                                    own_.whole, scale, smoothing);
    // lab: given
  }

  void backward_input(Backend& backend, Slice dx, const HeadStash& stash, Count rows,
                      const Meanwhile& meanwhile) const override {
    input_.sum_gradient(
        dx, rows,
        [&](Slice partial, Slice dlogits, Count of_rows) {
          backend.gemm(without_padding(dlogits, of_rows, own_.count),
                       {parameters_.value(weight_), own_.count, width_}, {partial, of_rows, width_},
                       0);
        },
        stash.logits.slice(), TensorRanks::head_label, meanwhile);
  }

  void backward_weight(Backend& backend, const HeadStash& stash, Count rows) const override {
    if (parameters_.are_frozen()) return;
    input_.with_all_rows(
        stash.normed, rows, TensorRanks::head_label, GatheredInput::Pass::backward,
        [&](Slice x, Slice dlogits, Count of_rows) {
          backend.gemm(without_padding(dlogits, of_rows, own_.count).t(), {x, of_rows, width_},
                       {parameters_.gradient(weight_), own_.count, width_}, 1);
        },
        stash.logits.slice());
  }

  int parameter() const override { return weight_; }

 private:
  Tensor& normed(HeadStash& stash) const {
    return parameters_.are_frozen() ? parameters_.adapters()->column_input() : stash.normed;
  }

  TensorRanks& ranks_;
  Parameters& parameters_;
  GatheredInput input_;
  Count width_;
  Tokens own_;
  int weight_;
};
// lab: end

class VocabularyEmbedding final : public Embedding {
 public:
  VocabularyEmbedding(TensorRanks& ranks, Parameters& parameters, const GptConfig& config)
      : ranks_(ranks),
        parameters_(parameters),
        width_(config.width),
        own_(ranks.split(), config.vocabulary),
        tokens_(own_.add(parameters, "wte.weight", width_)),
        positions_(parameters.add({.name = "wpe.weight",
                                   .shape = {config.context, width_},
                                   .initial = Initial::normal})) {}

  void forward(Backend& backend, Slice out, std::span<const std::int32_t> inputs, const Rows& rows,
               const Dropout& dropout) const override {
    const LayerSplit& split = ranks_.split();
    const Count all = rows.count(), outer = split.outer_rows(all);
    const Slice partial =
        split.by_sequence ? ranks_.scratch(TensorRanks::Use::partial, all, width_, out.dtype) : out;
    backend.embedding(partial, parameters_.value(tokens_), own_.first_token(), inputs);
    ranks_.sum(partial, TensorRanks::embedding_label);
    if (split.by_sequence) out.device->copy(out, ranks_.own_rows(partial));
    backend.add_positions(out, parameters_.value(positions_),
                          rows.places(split.first_outer_row(all)), outer);
    if (dropout.rate > 0) backend.dropout(out, out, outer, dropout);
  }

  void backward(Backend& backend, Slice dout, std::span<const std::int32_t> inputs,
                const Rows& rows, const Dropout& dropout) const override {
    if (parameters_.are_frozen()) return;
    const LayerSplit& split = ranks_.split();
    const Count all = rows.count(), outer = split.outer_rows(all);
    if (dropout.rate > 0) backend.dropout(dout, dout, outer, dropout);
    backend.positions_backward(parameters_.gradient(positions_), dout,
                               rows.places(split.first_outer_row(all)), outer);
    Slice of_all = dout;
    if (split.by_sequence) {
      of_all = ranks_.scratch(TensorRanks::Use::gathered, all, width_, dout.dtype);
      const Slice own = ranks_.own_rows(of_all);
      own.device->copy(own, dout);
      ranks_.gather(of_all, TensorRanks::embedding_label);
    }
    backend.embedding_backward(parameters_.gradient(tokens_), own_.first_token(), of_all, inputs);
  }

  int tokens() const override { return tokens_; }
  int positions() const override { return positions_; }

 private:
  TensorRanks& ranks_;
  Parameters& parameters_;
  Count width_;
  Tokens own_;
  int tokens_, positions_;
};

}  // namespace

std::unique_ptr<Embedding> vocabulary_embedding(TensorRanks& ranks, Parameters& parameters,
                                                const GptConfig& config) {
  return std::make_unique<VocabularyEmbedding>(ranks, parameters, config);
}

std::unique_ptr<Head> vocabulary_head(TensorRanks& ranks, Parameters& parameters,
                                      const GptConfig& config, const Embedding* tied) {
  return std::make_unique<VocabularyHead>(ranks, parameters, config, tied);
}

}  // namespace lockstep
