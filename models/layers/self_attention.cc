#include "models/layers/self_attention.h"

#include "models/narrow_backend.h"

namespace lockstep {

SelfAttention::SelfAttention(std::unique_ptr<ColumnLinear> queries_keys_values,
                             std::unique_ptr<RowLinear> projection, const AttentionHeads& heads,
                             const Masks& masks, int layer)
    : queries_keys_values_(std::move(queries_keys_values)),
      projection_(std::move(projection)),
      heads_(heads),
      masks_(masks),
      layer_(layer) {}

Slice SelfAttention::input(AttentionActivations& kept, const Rows& rows, Ledger& ledger) const {
  return queries_keys_values_->input(kept.input, rows.count(), ledger);
}

void SelfAttention::forward(Backend& backend, Slice out, Slice base, AttentionActivations& kept,
                            const Rows& rows, Ledger& ledger) const {
  const Count all = rows.count();
  ensure(kept.qkv, {all, shape(rows).qkv_width()}, out.dtype, ledger, MemoryUse::activations);
  queries_keys_values_->forward(backend, kept.qkv.slice(), kept.input, all);
  attend(backend, kept, rows, ledger);
  projection_->forward(backend, out, base, kept.output.out.slice(), all, projection_mask(rows));
}

void SelfAttention::attend(Backend& backend, AttentionActivations& kept, const Rows& rows,
                           Ledger& ledger) const {
  const Slice qkv = kept.qkv.slice();
  AttentionOutput& output = kept.output;
  ensure(output.log_sum_exp, {rows.sequences, heads_.queries, rows.length},
         statistics_type(qkv.dtype), ledger, MemoryUse::activations);
  ensure(output.out, {rows.count(), shape(rows).width()}, qkv.dtype, ledger,
         MemoryUse::activations);
  backend.attention(output.out.slice(), output.log_sum_exp.slice(), qkv, shape(rows),
                    probability_mask(rows));
}

void SelfAttention::backward_input(Backend& backend, Slice dx, Slice dout,
                                   const AttentionActivations& kept, AttentionGradients& gradients,
                                   const Rows& rows, Ledger& ledger,
                                   const Meanwhile& meanwhile) const {
  const Count all = rows.count();
  const Slice doutput = dx.first(all * shape(rows).width());
  projection_->backward_input(backend, doutput, gradients.projected, dout, all,
                              projection_mask(rows), ledger);
  ensure(gradients.qkv, {all, shape(rows).qkv_width()}, dx.dtype, ledger, MemoryUse::activations);
  attend_backward(backend, gradients.qkv.slice(), doutput, kept, rows);
  queries_keys_values_->backward_input(backend, dx, gradients.qkv.slice(), all, meanwhile);
}

void SelfAttention::attend_backward(Backend& backend, Slice dqkv, Slice dout,
                                    const AttentionActivations& kept, const Rows& rows) const {
  backend.attention_backward(dqkv, dout, kept.output.out.slice(), kept.output.log_sum_exp.slice(),
                             kept.qkv.slice(), shape(rows), probability_mask(rows));
}

void SelfAttention::backward_weight(Backend& backend, Slice dout, const AttentionActivations& kept,
                                    const AttentionGradients& gradients, const Rows& rows) const {
  projection_->backward_weight(backend, gradients.projected, dout, kept.output.out.slice(),
                               rows.count());
  queries_keys_values_->backward_weight(backend, gradients.qkv.slice(), kept.input, rows.count());
}

}  // namespace lockstep
