#include "models/gpt.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/narrow_backend.h"
#include "models/random.h"

namespace lockstep {
namespace {

std::vector<Block> make_blocks(Parameters& parameters, const GptConfig& config) {
  std::vector<Block> blocks;
  for (int i = 0; i < config.layers; ++i)
    blocks.emplace_back(parameters, fmt::format("h.{}", i), config);
  return blocks;
}

}  // namespace

Gpt::Gpt(const GptConfig& config, Backend& backend, DType dtype, Ledger& ledger, bool has_memory)
    : config_(config),
      backend_(backend),
      ledger_(ledger),
      parameters_(dtype, ledger),
      tokens_(parameters_.add("wte.weight", {config.vocabulary, config.width})),
      positions_(parameters_.add("wpe.weight", {config.context, config.width})),
      blocks_(make_blocks(parameters_, config)),
      last_norm_(parameters_, "ln_f", config.width, config.layer_norm_epsilon),
      stashes_(blocks_.size()) {
  check(config);
  if (has_memory) parameters_.allocate();
}

void Gpt::initialize(std::uint64_t seed) {
  constexpr double deviation = 0.02;
  for (std::size_t p = 0; p < parameters_.list().size(); ++p) {
    const Parameter& parameter = parameters_.list()[p];
    const bool is_matrix = parameter.decays();
    const bool ends_branch = parameter.name.ends_with("c_proj.weight");
    const double scale = ends_branch ? deviation / std::sqrt(2.0 * config_.layers) : deviation;
    const bool is_norm_scale = !is_matrix && parameter.name.ends_with(".weight");
    const auto value = [&](Count i) {
      return is_matrix       ? scale * random_normal(seed, static_cast<std::int64_t>(p), i)
             : is_norm_scale ? 1.0
                             : 0.0;
    };
    const Slice slice = parameters_.value(static_cast<int>(p));
    std::vector<double> values(static_cast<std::size_t>(slice.count));
    for (Count i = 0; i < slice.count; ++i) values[i] = value(i);
    convert(slice, host_slice(std::span(values)));
  }
}

Slice Gpt::buffer(Tensor& tensor, Count rows, Count columns, MemoryUse use) {
  ensure(tensor, {rows, columns}, parameters_.dtype(), ledger_, use);
  return tensor.slice();
}

void Gpt::forward(std::span<const std::int32_t> inputs, const Rows& rows) {
  const Count n = rows.count();
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].prepare(stashes_[i], rows, parameters_.dtype(), ledger_);
  const Slice last = buffer(last_, n, config_.width, MemoryUse::activations);
  const auto input_of = [&](std::size_t i) {
    return i < blocks_.size() ? stashes_[i].input.slice() : last;
  };

  backend_.embedding(input_of(0), parameters_.value(tokens_), parameters_.value(positions_), inputs,
                     rows.length);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].forward(backend_, input_of(i + 1), stashes_[i], ledger_);
  last_norm_.forward(backend_, buffer(normed_, n, config_.width, MemoryUse::activations),
                     last_stash_, last, n, ledger_);
}

double Gpt::head_loss(std::span<const std::int32_t> targets, double scale) {
  const Count n = std::ssize(targets), v = config_.vocabulary, c = config_.width;
  const Slice logits = buffer(logits_, n, v, MemoryUse::activations);
  backend_.gemm({normed_.slice(), n, c}, Matrix(parameters_.value(tokens_), v, c).t(),
                {logits, n, v}, 0);
  return backend_.cross_entropy(logits, targets, scale);
}

double Gpt::forward_backward(const Batch& batch, Count total_targets, const GradientReady& ready,
                             double loss_scale) {
  forward(batch.inputs, {batch.sequences, batch.length});
  const double share = 1.0 / static_cast<double>(total_targets);
  const double loss = head_loss(batch.targets, share * loss_scale) * share;

  backward_head(ready);
  backward_blocks(ready);
  backend_.embedding_backward(parameters_.gradient(tokens_), parameters_.gradient(positions_),
                              dembedded_.slice(), batch.inputs, batch.length);
  if (ready) {
    ready(positions_);
    ready(tokens_);
  }
  return loss;
}

void Gpt::backward_head(const GradientReady& ready) {
  const Count n = normed_.rows(), v = config_.vocabulary, c = config_.width;
  const Slice dlogits = logits_.slice();
  const Slice dnormed = buffer(dnormed_, n, c, MemoryUse::activations);
  backend_.gemm({dlogits, n, v}, {parameters_.value(tokens_), v, c}, {dnormed, n, c}, 0);
  // The first part of the tied embedding's gradient; backward of the embedding adds the second.
  backend_.gemm(Matrix(dlogits, n, v).t(), {normed_.slice(), n, c},
                {parameters_.gradient(tokens_), v, c}, 1);

  const Slice dlast = buffer(stashes_.back().dout, n, c, MemoryUse::activations);
  last_norm_.backward_input(backend_, dlast, {}, dnormed, last_stash_, last_.slice(), n);
  last_norm_.backward_weight(backend_, dnormed, last_stash_, last_.slice(), n);
  if (ready) {
    ready(last_norm_.bias());
    ready(last_norm_.weight());
  }
}

void Gpt::backward_blocks(const GradientReady& ready) {
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    BlockStash& stash = stashes_[i];
    Tensor& dinput = i == 0 ? dembedded_ : stashes_[i - 1].dout;
    blocks_[i].backward_input(
        backend_, buffer(dinput, stash.rows.count(), config_.width, MemoryUse::activations), stash,
        ledger_);
    blocks_[i].backward_weight(backend_, stash);
    for (int p = blocks_[i].last_parameter(); ready && p >= blocks_[i].first_parameter(); --p)
      ready(p);
  }
}

double Gpt::loss_sum(const Batch& batch) {
  forward(batch.inputs, {batch.sequences, batch.length});
  return head_loss(batch.targets, 1.0);
}

std::vector<double> Gpt::next_token_logits(std::span<const std::int32_t> context) {
  require(!context.empty() && std::ssize(context) <= config_.context,
          fmt::format("a context of {} tokens for a model of {}", context.size(), config_.context));
  forward(context, {1, std::ssize(context)});
  const Count v = config_.vocabulary, c = config_.width;
  Tensor logits({1, v}, parameters_.dtype(), ledger_, MemoryUse::workspace);
  const Slice last_row = normed_.slice().part(normed_.count() - c, c);
  backend_.gemm({last_row, 1, c}, Matrix(parameters_.value(tokens_), v, c).t(),
                {logits.slice(), 1, v}, 0);
  std::vector<double> result(static_cast<std::size_t>(v));
  convert(host_slice(std::span(result)), logits.slice());
  return result;
}

}  // namespace lockstep
