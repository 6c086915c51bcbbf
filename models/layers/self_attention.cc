#include "models/layers/self_attention.h"

#include "models/ops/narrow_types.h"

namespace lockstep {

Slice SelfAttention::input(AttentionActivations& kept, const Rows& rows, Ledger& ledger) const {
  return parts_.queries_keys_values->input(kept.input, rows.count(), ledger);
}

void SelfAttention::forward(Backend& backend, Slice out, Slice base, AttentionActivations& kept,
                            const Rows& rows, Ledger& ledger) const {
  multiply(backend, kept, out.dtype, rows, ledger);
  attend(backend, kept, rows, ledger);
  parts_.projection->forward(backend, out, base, kept.output.out.slice(), rows.count(),
                             projection_mask(rows));
}

void SelfAttention::multiply(Backend& backend, AttentionActivations& kept, DType dtype,
                             const Rows& rows, Ledger& ledger) const {
  ensure(kept.qkv, {rows.count(), shape(rows).qkv_width()}, dtype, ledger, MemoryUse::activations);
  multiply_into(backend, kept.qkv.slice(), kept, rows);
}

void SelfAttention::multiply_into(Backend& backend, Slice qkv, const AttentionActivations& kept,
                                  const Rows& rows) const {
  parts_.queries_keys_values->forward(backend, qkv, kept.input, rows.count());
}

void SelfAttention::attend(Backend& backend, AttentionActivations& kept, const Rows& rows,
                           Ledger& ledger) const {
  const Slice qkv = kept.qkv.slice();
  AttentionOutput& output = kept.output;
  ensure(output.log_sum_exp, {rows.sequences, parts_.heads, rows.length},
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
  parts_.projection->backward_input(backend, doutput, gradients.projected, dout, all,
                                    projection_mask(rows), ledger);
  ensure(gradients.qkv, {all, shape(rows).qkv_width()}, dx.dtype, ledger, MemoryUse::activations);
  attend_backward(backend, gradients.qkv.slice(), doutput, kept, rows);
  parts_.queries_keys_values->backward_input(backend, dx, gradients.qkv.slice(), all, meanwhile);
}

void SelfAttention::attend_backward(Backend& backend, Slice dqkv, Slice dout,
                                    const AttentionActivations& kept, const Rows& rows) const {
  backend.attention_backward(dqkv, dout, kept.output.out.slice(), kept.output.log_sum_exp.slice(),
                             kept.qkv.slice(), shape(rows), probability_mask(rows));
}

void SelfAttention::backward_weight(Backend& backend, Slice dout, const AttentionActivations& kept,
                                    const AttentionGradients& gradients, const Rows& rows) const {
  parts_.projection->backward_weight(backend, gradients.projected, dout, kept.output.out.slice(),
                                     rows.count());
  parts_.queries_keys_values->backward_weight(backend, gradients.qkv.slice(), kept.input,
                                              rows.count());
}

}  // namespace lockstep
