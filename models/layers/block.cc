#include "models/layers/block.h"

#include "models/narrow_backend.h"

namespace lockstep {

Block::Block(Parameters& parameters, const std::string& name, const GptConfig& config)
    : width_(config.width),
      heads_(config.heads),
      norm_1_(parameters, name + ".ln_1", width_, config.layer_norm_epsilon),
      qkv_(parameters, name + ".attn.c_attn", width_, 3 * width_),
      project_(parameters, name + ".attn.c_proj", width_, width_),
      norm_2_(parameters, name + ".ln_2", width_, config.layer_norm_epsilon),
      expand_(parameters, name + ".mlp.c_fc", width_, 4 * width_),
      contract_(parameters, name + ".mlp.c_proj", 4 * width_, width_) {}

void Block::prepare(BlockStash& stash, Rows rows, DType dtype, Ledger& ledger) const {
  stash.rows = rows;
  ensure(stash.input, {rows.count(), width_}, dtype, ledger, MemoryUse::activations);
}

void Block::forward(Backend& backend, Slice out, BlockStash& s, Ledger& ledger) const {
  const Count n = s.rows.count();
  const auto make = [&](Tensor& tensor, Count columns) {
    ensure(tensor, {n, columns}, out.dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  norm_1_.forward(backend, make(s.normed_1, width_), s.norm_1, s.input.slice(), n, ledger);
  qkv_.forward(backend, make(s.qkv, 3 * width_), {}, s.normed_1.slice(), n);
  ensure(s.log_sum_exp, {s.rows.sequences, heads_, s.rows.length}, statistics_type(out.dtype),
         ledger, MemoryUse::activations);
  backend.attention(make(s.attended, width_), s.log_sum_exp.slice(), s.qkv.slice(), shape(s.rows));
  project_.forward(backend, make(s.middle, width_), s.input.slice(), s.attended.slice(), n);

  norm_2_.forward(backend, make(s.normed_2, width_), s.norm_2, s.middle.slice(), n, ledger);
  expand_.forward(backend, make(s.hidden, 4 * width_), {}, s.normed_2.slice(), n);
  backend.gelu(make(s.activated, 4 * width_), s.hidden.slice());
  contract_.forward(backend, out, s.middle.slice(), s.activated.slice(), n);
}

void Block::backward_input(Backend& backend, Slice dx, BlockStash& s, Ledger& ledger) const {
  const Count n = s.rows.count();
  const auto make = [&](Tensor& tensor, Count columns) {
    ensure(tensor, {n, columns}, dx.dtype, ledger, MemoryUse::activations);
    return tensor.slice();
  };
  const Slice dhidden = make(s.gradients.hidden, 4 * width_);
  contract_.backward_input(backend, dhidden, s.gradients.output.slice(), n);
  backend.gelu_backward(dhidden, dhidden, s.hidden.slice());
  expand_.backward_input(backend, make(s.gradients.normed_2, width_), dhidden, n);
  norm_2_.backward_input(backend, make(s.gradients.middle, width_), s.gradients.output.slice(),
                         s.gradients.normed_2.slice(), s.norm_2, s.middle.slice(), n);

  // gradients.normed_1 holds the gradient of the attention's output until the attention has been
  // gone through.
  const Slice dattended = make(s.gradients.normed_1, width_);
  project_.backward_input(backend, dattended, s.gradients.middle.slice(), n);
  backend.attention_backward(make(s.gradients.qkv, 3 * width_), dattended, s.attended.slice(),
                             s.log_sum_exp.slice(), s.qkv.slice(), shape(s.rows));
  qkv_.backward_input(backend, s.gradients.normed_1.slice(), s.gradients.qkv.slice(), n);
  norm_1_.backward_input(backend, dx, s.gradients.middle.slice(), s.gradients.normed_1.slice(),
                         s.norm_1, s.input.slice(), n);
}

void Block::backward_weight(Backend& backend, const BlockStash& s) const {
  const Count n = s.rows.count();
  contract_.backward_weight(backend, s.gradients.output.slice(), s.activated.slice(), n);
  expand_.backward_weight(backend, s.gradients.hidden.slice(), s.normed_2.slice(), n);
  norm_2_.backward_weight(backend, s.gradients.normed_2.slice(), s.norm_2, s.middle.slice(), n);
  project_.backward_weight(backend, s.gradients.middle.slice(), s.attended.slice(), n);
  qkv_.backward_weight(backend, s.gradients.qkv.slice(), s.normed_1.slice(), n);
  norm_1_.backward_weight(backend, s.gradients.normed_1.slice(), s.norm_1, s.input.slice(), n);
}

}  // namespace lockstep
