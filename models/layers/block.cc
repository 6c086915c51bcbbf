#include "models/layers/block.h"

#include <fmt/format.h>

#include "models/narrow_backend.h"

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
    : layer_(layer),
      split_(factory.split()),
      masks_(masks, split_),
      width_(config.width),
      hidden_(4 * width_ / split_.ranks),
      heads_(split_.heads(config.heads)),
      kv_heads_(split_.kv_heads(config.key_value_heads())),
      head_size_(config.head_size()),
      norm_1_(parameters, name_of(layer, "ln_1"), width_, config.layer_norm_epsilon),
      qkv_(factory.queries_keys_values(parameters, name_of(layer, "attn.c_attn"), config)),
      project_(factory.row(parameters, name_of(layer, "attn.c_proj"), width_, width_)),
      norm_2_(parameters, name_of(layer, "ln_2"), width_, config.layer_norm_epsilon),
      expand_(factory.column(parameters, name_of(layer, "mlp.c_fc"), width_, 4 * width_)),
      contract_(factory.row(parameters, name_of(layer, "mlp.c_proj"), 4 * width_, width_)) {}

void Block::prepare(BlockStash& stash, const Rows& rows, DType dtype, Ledger& ledger) const {
  stash.rows = rows;
  make(stash.input, split_.outer_rows(rows.count()), width_, dtype, ledger);
}

void Block::forward(Backend& backend, Slice out, BlockStash& s, Ledger& ledger) const {
  const Count all = s.rows.count(), outer = split_.outer_rows(all);
  const auto of_all = [&](Tensor& tensor, Count columns) {
    return make(tensor, all, columns, out.dtype, ledger);
  };
  BlockActivations& kept = s.kept;
  norm_1_.forward(backend, qkv_->input(kept.normed_1, all, ledger), kept.norm_1, s.input.slice(),
                  outer, ledger);
  qkv_->forward(backend, of_all(kept.qkv, shape(s.rows).qkv_width()), kept.normed_1, all);
  attend(backend, s, ledger);
  const Slice middle = make(kept.middle, outer, width_, out.dtype, ledger);
  project_->forward(backend, middle, s.input.slice(), kept.attention.out.slice(), all,
                    projection_mask(s.rows));

  norm_2_.forward(backend, expand_->input(kept.normed_2, all, ledger), kept.norm_2, middle, outer,
                  ledger);
  const Slice hidden = of_all(kept.hidden, hidden_);
  expand_->forward_gelu(backend, hidden, of_all(kept.activated, hidden_), kept.normed_2, all);
  contract_->forward(backend, out, middle, kept.activated.slice(), all, mlp_mask(s.rows));
}

void Block::attend(Backend& backend, BlockStash& s, Ledger& ledger) const {
  const Slice qkv = s.kept.qkv.slice();
  AttentionOutput& attention = s.kept.attention;
  ensure(attention.log_sum_exp, {s.rows.sequences, heads_, s.rows.length},
         statistics_type(qkv.dtype), ledger, MemoryUse::activations);
  backend.attention(make(attention.out, s.rows.count(), shape(s.rows).width(), qkv.dtype, ledger),
                    attention.log_sum_exp.slice(), qkv, shape(s.rows), attention_mask(s.rows));
}

void Block::backward_input(Backend& backend, Slice dx, BlockStash& s, Ledger& ledger,
                           Weights weights) const {
  const Count all = s.rows.count(), outer = split_.outer_rows(all);
  const auto of_all = [&](Tensor& tensor, Count columns) {
    return make(tensor, all, columns, dx.dtype, ledger);
  };
  const auto of_outer = [&](Tensor& tensor) {
    return make(tensor, outer, width_, dx.dtype, ledger);
  };
  const auto now = [&](Meanwhile work) { return weights == Weights::now ? work : Meanwhile(); };
  BlockGradients& d = s.gradients;
  const BlockActivations& kept = s.kept;

  const Slice dhidden = of_all(d.hidden, hidden_);
  contract_->backward_gelu(backend, dhidden, d.contracted, d.output.slice(), kept.hidden.slice(),
                           all, mlp_mask(s.rows), ledger);
  expand_->backward_input(backend, of_outer(d.normed_2), dhidden, all,
                          now([&] { mlp_weights(backend, s); }));
  norm_2_.backward_input(backend, of_outer(d.middle), d.output.slice(), d.normed_2.slice(),
                         kept.norm_2, kept.middle.slice(), outer);

  // normed_1 holds the gradient of the attention's output until the attention has been gone
  // through.
  const Slice dattended = of_outer(d.normed_1).first(all * shape(s.rows).width());
  project_->backward_input(backend, dattended, d.projected, d.middle.slice(), all,
                           projection_mask(s.rows), ledger);
  backend.attention_backward(of_all(d.qkv, shape(s.rows).qkv_width()), dattended,
                             kept.attention.out.slice(), kept.attention.log_sum_exp.slice(),
                             kept.qkv.slice(), shape(s.rows), attention_mask(s.rows));
  qkv_->backward_input(backend, d.normed_1.slice(), d.qkv.slice(), all,
                       now([&] { attention_weights(backend, s); }));
  norm_1_.backward_input(backend, dx, d.middle.slice(), d.normed_1.slice(), kept.norm_1,
                         s.input.slice(), outer);
  run(now([&] { norm_weights(backend, s); }));
}

void Block::backward_weight(Backend& backend, const BlockStash& s) const {
  mlp_weights(backend, s);
  attention_weights(backend, s);
  norm_weights(backend, s);
}

void Block::mlp_weights(Backend& backend, const BlockStash& s) const {
  const Count all = s.rows.count();
  contract_->backward_weight(backend, s.gradients.contracted, s.gradients.output.slice(),
                             s.kept.activated.slice(), all);
  expand_->backward_weight(backend, s.gradients.hidden.slice(), s.kept.normed_2, all);
}

void Block::attention_weights(Backend& backend, const BlockStash& s) const {
  const Count all = s.rows.count();
  project_->backward_weight(backend, s.gradients.projected, s.gradients.middle.slice(),
                            s.kept.attention.out.slice(), all);
  qkv_->backward_weight(backend, s.gradients.qkv.slice(), s.kept.normed_1, all);
}

void Block::norm_weights(Backend& backend, const BlockStash& s) const {
  const Count outer = split_.outer_rows(s.rows.count());
  norm_1_.backward_weight(backend, s.gradients.normed_1.slice(), s.kept.norm_1, s.input.slice(),
                          outer);
  norm_2_.backward_weight(backend, s.gradients.normed_2.slice(), s.kept.norm_2,
                          s.kept.middle.slice(), outer);
}

}  // namespace lockstep
