#include "models/gpt/gpt.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/gpt/weights.h"
#include "models/ops/narrow_types.h"

namespace lockstep {

Gpt::Gpt(const GptConfig& config, Backend& backend, DType dtype, Ledger& ledger, bool has_memory,
         const ModelOptions& options)
    : config_(config),
      options_(options),
      backend_(backend),
      ledger_(ledger),
      parameters_(dtype, ledger),
      adapters_(options.lora.exists()
                    ? std::optional<Adapters>(std::in_place, parameters_, options.lora, ledger,
                                              options.dropout.seed, config.head_size())
                    : std::nullopt),
      frozen_(dtype, ledger, {}, adapters_ ? &*adapters_ : nullptr),
      stage_(adapters_ ? frozen_ : parameters_, config_, {.first = 0, .count = config.layers},
             backend, ledger, options) {
  check(config);
  if (!has_memory) return;
  parameters_.allocate();
  if (!adapters_) return;
  frozen_.allocate();
  adapters_->packed().allocate();
}

void Gpt::initialize(std::uint64_t seed) {
  initialize_weights(parameters_, parameters_.list(), config_.layers, seed);
}

double Gpt::forward_backward(const Batch& batch, Count total_targets, double loss_scale) {
  const double share = 1.0 / static_cast<double>(total_targets);
  const double loss = stage_.forward(stash_, rows_in_training(batch, loss_scale), batch.inputs, {},
                                     {}, Targets{batch.targets, share * loss_scale});
  stage_.backward(stash_, batch.inputs, {}, {});
  return loss * share;
}

double Gpt::loss_sum(const Batch& batch) {
  return stage_.forward(stash_, rows_of(batch), batch.inputs, {}, {}, Targets{batch.targets});
}

std::vector<double> Gpt::next_token_logits(std::span<const std::int32_t> context) {
  require(!context.empty() && std::ssize(context) <= config_.context,
          fmt::format("a context of {} tokens for a model of {}", context.size(), config_.context));
  stage_.forward(stash_, {.sequences = 1, .length = std::ssize(context)}, context, {}, {});
  Tensor logits({1, config_.vocabulary}, parameters_.dtype(), ledger_, MemoryUse::workspace);
  stage_.last_logits(stash_, logits.slice());
  std::vector<double> result(static_cast<std::size_t>(config_.vocabulary));
  convert(host_slice(std::span(result)), logits.slice());
  return result;
}

}  // namespace lockstep
