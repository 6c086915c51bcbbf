#include "models/layers/block.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string name_of(int layer, const char* part) { return fmt::format("h.{}.{}", layer, part); }

Slice make(Tensor& tensor, Count rows, Count columns, DType dtype, Ledger& ledger) {
  ensure(tensor, {rows, columns}, dtype, ledger, MemoryUse::activations);
  return tensor.slice();
}

}  // namespace

Block::Block(Parameters& parameters, int layer, const GptConfig& config, const MaskOptions& masks,
             const LayerFactory& factory)
    : width_(config.width),
      norm_1_(parameters, name_of(layer, "ln_1"), width_, config.layer_norm_epsilon),
      attention_(factory.attention(parameters, layer, config, masks)),
      norm_2_(parameters, name_of(layer, "ln_2"), width_, config.layer_norm_epsilon),
      mlp_(factory.mlp(parameters, layer, config, masks)) {}

void Block::prepare(BlockStash& stash, const Rows& rows, Count outer, DType dtype,
                    Ledger& ledger) const {
  stash.rows = rows;
  make(stash.input, outer, width_, dtype, ledger);
}

void Block::forward(Backend& backend, Slice out, BlockStash& s, Ledger& ledger) const {
  BlockActivations& kept = s.kept;
  const Slice input = s.input.slice();
  const Count n = s.input.rows();
  norm_1_.forward(backend, attention_->input(kept.attention, s.rows, ledger), kept.norm_1, input, n,
                  ledger);
  const Slice middle = make(kept.middle, n, width_, out.dtype, ledger);
  attention_->forward(backend, middle, input, kept.attention, s.rows, ledger);
  norm_2_.forward(backend, mlp_->input(s.mlp, s.rows, ledger), kept.norm_2, middle, n, ledger);
  mlp_->forward(backend, out, middle, s.mlp, s.rows, ledger);
}

void Block::attend(Backend& backend, BlockStash& s, Ledger& ledger) const {
  attention_->attend(backend, s.kept.attention, s.rows, ledger);
}

void Block::backward_input(Backend& backend, Slice dx, BlockStash& s, Ledger& ledger,
                           Weights weights) const {
  const Count n = s.input.rows();
  const auto now = [&](Meanwhile work) { return weights == Weights::now ? work : Meanwhile(); };
  BlockGradients& d = s.gradients;
  const BlockActivations& kept = s.kept;
  for (Tensor* const tensor : {&d.normed_2, &d.middle, &d.normed_1})
    make(*tensor, n, width_, dx.dtype, ledger);

  mlp_->backward_input(backend, d.normed_2.slice(), d.output.slice(), s.mlp, s.mlp_gradients,
                       s.rows, ledger, now([&] { mlp_weights(backend, s); }));
  // Nothing below is trained.
  if (!mlp_->passes_gradient()) return;
  norm_2_.backward_input(backend, d.middle.slice(), d.output.slice(), d.normed_2.slice(),
                         kept.norm_2, kept.middle.slice(), n);
  attention_->backward_input(backend, d.normed_1.slice(), d.middle.slice(), kept.attention,
                             d.attention, s.rows, ledger,
                             now([&] { attention_weights(backend, s); }));
  if (attention_->passes_gradient())
    norm_1_.backward_input(backend, dx, d.middle.slice(), d.normed_1.slice(), kept.norm_1,
                           s.input.slice(), n);
  run(now([&] { norm_weights(backend, s); }));
}

void Block::backward_weight(Backend& backend, const BlockStash& s) const {
  mlp_weights(backend, s);
  if (!mlp_->passes_gradient()) return;
  attention_weights(backend, s);
  norm_weights(backend, s);
}

void Block::mlp_weights(Backend& backend, const BlockStash& s) const {
  mlp_->backward_weight(backend, s.gradients.output.slice(), s.mlp, s.mlp_gradients, s.rows);
}

void Block::attention_weights(Backend& backend, const BlockStash& s) const {
  attention_->backward_weight(backend, s.gradients.middle.slice(), s.kept.attention,
                              s.gradients.attention, s.rows);
}

void Block::norm_weights(Backend& backend, const BlockStash& s) const {
  const Count n = s.input.rows();
  norm_1_.backward_weight(backend, s.gradients.normed_1.slice(), s.kept.norm_1, s.input.slice(), n);
  norm_2_.backward_weight(backend, s.gradients.normed_2.slice(), s.kept.norm_2,
                          s.kept.middle.slice(), n);
}

}  // namespace lockstep
