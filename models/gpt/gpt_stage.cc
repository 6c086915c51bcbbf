#include "models/gpt/gpt_stage.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/base/error.h"

namespace lockstep {

StageLayers layers_of_stage(int layers, int stages, int stage) {
  const Parts parts(layers, stages);
  return {.first = static_cast<int>(parts.offset(stage)), .count = static_cast<int>(parts[stage])};
}

Recompute recompute_from_name(std::string_view name) {
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  require(name == "full", fmt::format("--recompute '{}'", name),
          "choose none, selective (the attention) or full (every layer)");
  return Recompute::full;
}

GptStage::GptStage(Parameters& parameters, const GptConfig& config, StageLayers layers,
                   Backend& backend, Ledger& ledger, const ModelOptions& options,
                   const LayerFactory& factory)
    : parameters_(parameters),
      config_(config),
      layers_(layers),
      backend_(backend),
      ledger_(ledger),
      options_(options),
      split_(factory.split()),
      masks_(options.dropout, split_) {
  if (is_first()) embedding_ = factory.embedding(parameters, config);
  const Adapters* const adapters = parameters.adapters();
  for (int i = 0; i < layers.count; ++i) {
    const int first = adapters ? adapters->count() : 0,
              packed = adapters ? adapters->count_packed() : 0;
    blocks_.emplace_back(parameters, layers.first + i, config, options.dropout, factory);
    if (adapters) adapters_.push_back({first, adapters->count() - 1});
    if (adapters && adapters->count_packed() > packed)
      packed_.push_back({packed, adapters->count_packed() - 1, ParameterSet::packed});
  }
  if (is_last()) {
    norm_.emplace(parameters, "ln_f", config.width, config.layer_norm_epsilon);
    head_ = factory.head(parameters, config, embedding_.get());
  }
}

std::optional<int> GptStage::tokens() const {
  return embedding_ ? std::optional(embedding_->tokens()) : std::nullopt;
}

std::optional<int> GptStage::head() const {
  return head_ ? std::optional(head_->parameter()) : std::nullopt;
}

Unit GptStage::head_unit() const {
  return {norm_->weight(), embedding_ ? norm_->bias() : head_->parameter(), base_set()};
}

std::vector<Unit> GptStage::block_units(std::size_t i) const {
  std::vector<Unit> units = {
      {blocks_[i].first_parameter(), blocks_[i].last_parameter(), base_set()}};
  if (!packed_.empty()) units.push_back(packed_[i]);
  if (!adapters_.empty()) units.push_back(adapters_[i]);
  if (const Experts* const experts = blocks_[i].divided_experts())
    units.push_back({experts->first_parameter(), experts->last_parameter(), ParameterSet::experts});
  return units;
}

std::vector<Unit> GptStage::units() const {
  std::vector<Unit> units;
  if (is_first()) units.push_back(embedding_unit());
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    for (const Unit& unit : block_units(i)) units.push_back(unit);
  if (is_last()) units.push_back(head_unit());
  return units;
}

template <typename Work>
void GptStage::with_units(const std::vector<Unit>& units, UnitUse use, Work work) {
  for (std::size_t i = 0; observer_ && i < units.size(); ++i) observer_->before_use(units[i], use);
  work();
  for (std::size_t i = units.size(); observer_ && i-- > 0;) observer_->after_use(units[i], use);
}

Slice GptStage::buffer(Tensor& tensor, Count rows, Count columns) {
  ensure(tensor, {rows, columns}, parameters_.dtype(), ledger_, MemoryUse::activations);
  return tensor.slice();
}

template <typename Work>
void GptStage::with_shared_memory(std::size_t i, StageStash& stash, Work work) {
  BlockStash& block = stash.blocks[i];
  const auto exchange = [&] {
    if (options_.recompute == Recompute::full) {
      std::swap(block.kept, shared_);
      std::swap(block.mlp.tensors, shared_mlps_[has_experts(i)]);
    }
    if (store_) std::swap(block.input, passing_input(i));
    if (options_.recompute == Recompute::selective)
      std::swap(block.kept.attention.output, attention_output_);
  };
  exchange();
  work();
  exchange();
}

Slice GptStage::input(StageStash& stash, const Rows& rows) {
  stash.blocks.resize(blocks_.size());
  return outer(stash.blocks.front().input, rows);
}

double GptStage::forward(StageStash& stash, const Rows& rows, std::span<const std::int32_t> tokens,
                         Slice input, Slice output, const std::optional<Targets>& targets) {
  stash.rows = rows;
  stash.blocks.resize(blocks_.size());
  if (parameters_.are_frozen()) parameters_.adapters()->reserve(rows.count());
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    with_shared_memory(i, stash, [&] {
      blocks_[i].prepare(stash.blocks[i], rows, outer_rows(rows.count()), parameters_.dtype(),
                         ledger_);
    });
  const Slice last = is_last() ? outer(stash.head.input, rows) : output;
  const auto input_of = [&](std::size_t i) {
    if (i == blocks_.size()) return last;
    return (store_ ? passing_input(i) : stash.blocks[i].input).slice();
  };

  const UnitUse use = rows.in_training() ? UnitUse::forward : UnitUse::evaluation;
  if (is_first())
    with_units({embedding_unit()}, use, [&] {
      embedding_->forward(backend_, input_of(0), tokens, rows, embedding_mask(rows));
    });
  else if (input.data != input_of(0).data)
    input.device->copy(input_of(0), input);
  stash.stored_inputs.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    with_units(block_units(i), use, [&] {
      with_shared_memory(i, stash, [&] {
        blocks_[i].forward(backend_, input_of(i + 1), stash.blocks[i], ledger_);
      });
    });
    if (has_experts(i) && rows.in_training() && !rows.again)
      routing_.add(layers_.first + static_cast<int>(i), stash.blocks[i].mlp.routing);
    if (store_ && rows.in_training()) stash.stored_inputs.push_back(store_->keep(input_of(i)));
  }
  double loss = 0;
  if (is_last())
    with_units({head_unit()}, use, [&] {
      norm_->forward(backend_, head_->input(stash.head, rows.count(), ledger_), stash.head.norm,
                     last, split_.outer_rows(rows.count()), ledger_);
      const double smoothing = rows.in_training() ? options_.label_smoothing : 0;
      if (targets)
        loss =
            head_->loss(backend_, stash.head, targets->tokens, targets->scale, smoothing, ledger_);
    });
  return loss;
}

void GptStage::last_logits(const StageStash& stash, Slice logits) {
  const Count v = config_.vocabulary, c = config_.width;
  const Slice normed = stash.head.normed.slice();
  backend_.gemm({normed.part(normed.count - c, c), 1, c},
                Matrix(parameters_.value(head_->parameter()), v, c).t(), {logits, 1, v}, 0);
}

void GptStage::head_backward_weight(StageStash& stash) {
  head_->backward_weight(backend_, stash.head, stash.rows.count());
}

void GptStage::take_output_gradient(StageStash& stash, Tensor& own, Slice output_gradient,
                                    Block::Weights weights) {
  const Slice into = outer(own, stash.rows);
  if (!is_last()) return into.device->copy(into, output_gradient);
  const Slice dnormed = outer(stash.head_gradient, stash.rows);
  head_->backward_input(backend_, dnormed, stash.head, stash.rows.count(),
                        weights == Block::Weights::now
                            ? Meanwhile([&] { head_backward_weight(stash); })
                            : Meanwhile());
  norm_->backward_input(backend_, into, {}, dnormed, stash.head.norm, stash.head.input.slice(),
                        outer_rows(stash.rows.count()));
}

void GptStage::make_again(std::size_t block, StageStash& stash) {
  if (options_.recompute == Recompute::selective)
    blocks_[block].attend(backend_, stash.blocks[block], ledger_);
  if (options_.recompute != Recompute::full) return;
  stash.blocks[block].rows.again = true;
  blocks_[block].forward(backend_,
                         outer(store_ ? passing_input(block + 1) : made_again_, stash.rows),
                         stash.blocks[block], ledger_);
}

void GptStage::bring_input_back(std::size_t block, StageStash& stash) {
  const int number = stash.stored_inputs[block];
  store_->bring_back(
      outer(passing_input(block), stash.rows), number,
      block > 0 ? std::optional(stash.stored_inputs[block - 1]) : std::optional<int>());
}

void GptStage::backward_input(StageStash& stash, Slice output_gradient, Slice input_gradient) {
  require(options_.recompute != Recompute::full,
          "backward cannot be split in a stage that recomputes every layer");
  constexpr UnitUse use = UnitUse::input_gradient;
  Tensor& own = stash.blocks.back().gradients.output;
  if (is_last())
    with_units({head_unit()}, use,
               [&] { take_output_gradient(stash, own, {}, Block::Weights::later); });
  else
    take_output_gradient(stash, own, output_gradient, Block::Weights::later);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const Slice dx = i > 0        ? outer(stash.blocks[i - 1].gradients.output, stash.rows)
                     : is_first() ? outer(stash.embedding_gradient, stash.rows)
                                  : input_gradient;
    with_units(block_units(i), use, [&] {
      make_again(i, stash);
      blocks_[i].backward_input(backend_, dx, stash.blocks[i], ledger_, Block::Weights::later);
    });
  }
}

void GptStage::announce(const Unit& unit) {
  if (!is_trained(unit.set)) return;
  for (int p = unit.last; observer_ && p >= unit.first; --p) observer_->gradient_ready(p, unit.set);
}

void GptStage::announce_block(std::size_t i) {
  for (const Unit& unit : block_units(i)) announce(unit);
}

void GptStage::norm_backward_weight(StageStash& stash) {
  norm_->backward_weight(backend_, stash.head_gradient.slice(), stash.head.norm,
                         stash.head.input.slice(), outer_rows(stash.rows.count()));
  announce({norm_->weight(), norm_->bias(), base_set()});
  if (!embedding_) announce({head_->parameter(), head_->parameter(), base_set()});
}

void GptStage::embedding_backward(StageStash& stash, std::span<const std::int32_t> tokens,
                                  UnitUse use) {
  with_units({embedding_unit()}, use, [&] {
    embedding_->backward(backend_, stash.embedding_gradient.slice(), tokens, stash.rows,
                         embedding_mask(stash.rows));
    announce(embedding_unit());
  });
}

void GptStage::backward_weight(StageStash& stash, std::span<const std::int32_t> tokens) {
  constexpr UnitUse use = UnitUse::weight_gradient;
  if (is_last())
    with_units({head_unit()}, use, [&] {
      head_backward_weight(stash);
      norm_backward_weight(stash);
    });
  for (std::size_t i = blocks_.size(); i-- > 0;)
    with_units(block_units(i), use, [&] {
      blocks_[i].backward_weight(backend_, stash.blocks[i]);
      announce_block(i);
    });
  if (is_first()) embedding_backward(stash, tokens, use);
}

void GptStage::backward(StageStash& stash, std::span<const std::int32_t> tokens,
                        Slice output_gradient, Slice input_gradient) {
  if (is_last())
    with_units({head_unit()}, UnitUse::backward, [&] {
      take_output_gradient(stash, stash.gradients.output, {}, Block::Weights::now);
      norm_backward_weight(stash);
    });
  else
    take_output_gradient(stash, stash.gradients.output, output_gradient, Block::Weights::now);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const Slice dx = i > 0        ? outer(stash.next_gradient, stash.rows)
                     : is_first() ? outer(stash.embedding_gradient, stash.rows)
                                  : input_gradient;
    BlockStash& block = stash.blocks[i];
    block.gradients = std::exchange(stash.gradients, {});
    std::swap(block.mlp_gradients, stash.mlp_gradients[has_experts(i)]);
    if (store_) bring_input_back(i, stash);
    with_units(block_units(i), UnitUse::backward, [&] {
      with_shared_memory(i, stash, [&] {
        make_again(i, stash);
        blocks_[i].backward_input(backend_, dx, block, ledger_, Block::Weights::now);
      });
      announce_block(i);
    });
    stash.gradients = std::exchange(block.gradients, {});
    std::swap(block.mlp_gradients, stash.mlp_gradients[has_experts(i)]);
    if (i > 0) std::swap(stash.gradients.output, stash.next_gradient);
  }
  if (is_first()) embedding_backward(stash, tokens, UnitUse::backward);
}

}  // namespace lockstep
