#include "models/gpt_stage.h"

#include <fmt/format.h>

#include "models/narrow_backend.h"

namespace lockstep {

StageLayers layers_of_stage(int layers, int stages, int stage) {
  const Parts parts(layers, stages);
  return {.first = static_cast<int>(parts.offset(stage)), .count = static_cast<int>(parts[stage])};
}

GptStage::GptStage(Parameters& parameters, const GptConfig& config, StageLayers layers,
                   Backend& backend, Ledger& ledger)
    : parameters_(parameters),
      config_(config),
      layers_(layers),
      backend_(backend),
      ledger_(ledger),
      first_parameter_(static_cast<int>(parameters.list().size())) {
  if (is_first()) {
    tokens_ = parameters.add("wte.weight", {config.vocabulary, config.width});
    positions_ = parameters.add("wpe.weight", {config.context, config.width});
  }
  for (int i = 0; i < layers.count; ++i)
    blocks_.emplace_back(parameters, fmt::format("h.{}", layers.first + i), config);
  if (is_last()) {
    norm_.emplace(parameters, "ln_f", config.width, config.layer_norm_epsilon);
    head_ =
        tokens_ ? *tokens_ : parameters.add("lm_head.weight", {config.vocabulary, config.width});
  }
  last_parameter_ = static_cast<int>(parameters.list().size()) - 1;
}

Slice GptStage::buffer(Tensor& tensor, Count rows, Count columns) {
  ensure(tensor, {rows, columns}, parameters_.dtype(), ledger_, MemoryUse::activations);
  return tensor.slice();
}

void GptStage::forward(StageStash& stash, const Rows& rows, std::span<const std::int32_t> tokens,
                       Slice input, Slice output) {
  stash.rows = rows;
  stash.blocks.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].prepare(stash.blocks[i], rows, parameters_.dtype(), ledger_);
  const Slice last = is_last() ? buffer(stash.head.input, rows.count(), config_.width) : output;
  const auto input_of = [&](std::size_t i) {
    return i < blocks_.size() ? stash.blocks[i].input.slice() : last;
  };

  if (is_first())
    backend_.embedding(input_of(0), parameters_.value(*tokens_), parameters_.value(*positions_),
                       tokens, rows.length);
  else if (input.data != input_of(0).data)
    input.device->copy(input_of(0), input);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].forward(backend_, input_of(i + 1), stash.blocks[i], ledger_);
  if (is_last())
    norm_->forward(backend_, buffer(stash.head.normed, rows.count(), config_.width),
                   stash.head.norm, last, rows.count(), ledger_);
}

double GptStage::loss(StageStash& stash, std::span<const std::int32_t> targets, double scale) {
  const Count n = stash.rows.count(), v = config_.vocabulary, c = config_.width;
  const Slice logits = buffer(stash.head.logits, n, v);
  backend_.gemm({stash.head.normed.slice(), n, c}, Matrix(parameters_.value(*head_), v, c).t(),
                {logits, n, v}, 0);
  return backend_.cross_entropy(logits, targets, scale);
}

void GptStage::last_logits(const StageStash& stash, Slice logits) {
  const Count v = config_.vocabulary, c = config_.width;
  const Slice normed = stash.head.normed.slice();
  backend_.gemm({normed.part(normed.count - c, c), 1, c},
                Matrix(parameters_.value(*head_), v, c).t(), {logits, 1, v}, 0);
}

void GptStage::head_backward_input(StageStash& stash) {
  const Count n = stash.rows.count(), v = config_.vocabulary, c = config_.width;
  const Slice dnormed = buffer(stash.head_gradient, n, c);
  backend_.gemm({stash.head.logits.slice(), n, v}, {parameters_.value(*head_), v, c},
                {dnormed, n, c}, 0);
  norm_->backward_input(backend_, buffer(stash.blocks.back().gradients.output, n, c), {}, dnormed,
                        stash.head.norm, stash.head.input.slice(), n);
}

void GptStage::head_backward_weight(StageStash& stash) {
  const Count n = stash.rows.count(), v = config_.vocabulary, c = config_.width;
  // Of a tied embedding this is the first part; backward of the embedding adds the second.
  backend_.gemm(Matrix(stash.head.logits.slice(), n, v).t(), {stash.head.normed.slice(), n, c},
                {parameters_.gradient(*head_), v, c}, 1);
  norm_->backward_weight(backend_, stash.head_gradient.slice(), stash.head.norm,
                         stash.head.input.slice(), n);
}

void GptStage::block_backward_input(StageStash& stash, std::size_t block, Slice input_gradient) {
  const Count n = stash.rows.count();
  const Slice dx = block > 0    ? buffer(stash.blocks[block - 1].gradients.output, n, config_.width)
                   : is_first() ? buffer(stash.embedding_gradient, n, config_.width)
                                : input_gradient;
  blocks_[block].backward_input(backend_, dx, stash.blocks[block], ledger_);
}

void GptStage::embedding_backward(StageStash& stash, std::span<const std::int32_t> tokens) {
  backend_.embedding_backward(parameters_.gradient(*tokens_), parameters_.gradient(*positions_),
                              stash.embedding_gradient.slice(), tokens, stash.rows.length);
}

void GptStage::take_output_gradient(StageStash& stash, Slice output_gradient) {
  if (is_last()) return head_backward_input(stash);
  const Slice own = buffer(stash.blocks.back().gradients.output, stash.rows.count(), config_.width);
  own.device->copy(own, output_gradient);
}

void GptStage::backward_input(StageStash& stash, Slice output_gradient, Slice input_gradient) {
  take_output_gradient(stash, output_gradient);
  for (std::size_t i = blocks_.size(); i-- > 0;) block_backward_input(stash, i, input_gradient);
}

void GptStage::backward_weight(StageStash& stash, std::span<const std::int32_t> tokens) {
  if (is_last()) head_backward_weight(stash);
  for (std::size_t i = blocks_.size(); i-- > 0;)
    blocks_[i].backward_weight(backend_, stash.blocks[i]);
  if (is_first()) embedding_backward(stash, tokens);
}

void GptStage::backward(StageStash& stash, std::span<const std::int32_t> tokens,
                        Slice output_gradient, Slice input_gradient, const GradientReady& ready) {
  const auto finished = [&](int first, int last) {
    for (int p = last; ready && p >= first; --p) ready(p);
  };
  take_output_gradient(stash, output_gradient);
  if (is_last()) {
    head_backward_weight(stash);
    finished(norm_->weight(), norm_->bias());
    if (head_ != tokens_) finished(*head_, *head_);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    block_backward_input(stash, i, input_gradient);
    blocks_[i].backward_weight(backend_, stash.blocks[i]);
    finished(blocks_[i].first_parameter(), blocks_[i].last_parameter());
  }
  if (!is_first()) return;
  embedding_backward(stash, tokens);
  finished(*tokens_, *positions_);
}

// What Block and LayerNorm keep: input, normed_1, qkv (3), attended, middle, normed_2, hidden (4)
// and activated (4) of the model's type; two statistics of each norm, and the log-sum-exp of each
// head.
Count GptStage::block_bytes(const GptConfig& config, Count rows, DType dtype) {
  return rows * (16 * Count{config.width} * element_bytes(dtype) +
                 (4 + Count{config.heads}) * element_bytes(statistics_type(dtype)));
}

// Of output, hidden (4), normed_2, middle, qkv (3) and normed_1.
Count GptStage::block_gradient_bytes(const GptConfig& config, Count rows, DType dtype) {
  return rows * 11 * Count{config.width} * element_bytes(dtype);
}

Count GptStage::head_bytes(const GptConfig& config, Count rows, DType dtype) {
  return rows * ((2 * Count{config.width} + config.vocabulary) * element_bytes(dtype) +
                 2 * element_bytes(statistics_type(dtype)));
}

Count GptStage::end_gradient_bytes(const GptConfig& config, Count rows, DType dtype) {
  return rows * config.width * element_bytes(dtype);
}

}  // namespace lockstep
