#include "models/layers/self_attention.h"

#include "models/ops/narrow_types.h"

namespace lockstep {

Slice SelfAttention::input(AttentionStash& kept, const Rows& rows, Ledger& ledger) const {
  return parts_.queries_keys_values->input(kept.operands.own<Operands>().input, rows.count(),
                                           ledger);
}

void SelfAttention::forward(Backend& backend, Slice out, Slice base, AttentionStash& kept,
                            const Rows& rows, Ledger& ledger) const {
  multiply(backend, kept.operands.own<Operands>(), out.dtype, rows, ledger);
  attend(backend, kept, rows, ledger);
  parts_.projection->forward(backend, out, base, kept.output.own<Output>().out.slice(), rows,
                             projection_mask(rows));
}

void SelfAttention::multiply(Backend& backend, Operands& operands, DType dtype, const Rows& rows,
                             Ledger& ledger) const {
  ensure(operands.qkv, {rows.count(), shape(rows).qkv_width()}, dtype, ledger,
         MemoryUse::activations);
  multiply_into(backend, operands.qkv.slice(), operands, rows);
}

void SelfAttention::multiply_into(Backend& backend, Slice qkv, const Operands& operands,
                                  const Rows& rows) const {
  parts_.queries_keys_values->forward(backend, qkv, operands.input, rows);
}

void SelfAttention::attend(Backend& backend, AttentionStash& kept, const Rows& rows,
                           Ledger& ledger) const {
  const LayerStash& operands = kept.operands;
  attend_forward(backend, kept.output.own<Output>(), operands.own<Operands>(), rows, ledger);
}

void SelfAttention::attend_forward(Backend& backend, Output& output, const Operands& operands,
                                   const Rows& rows, Ledger& ledger) const {
  const Slice qkv = operands.qkv.slice();
  ensure(output.log_sum_exp, {rows.sequences, parts_.heads, rows.length},
         statistics_type(qkv.dtype), ledger, MemoryUse::activations);
  ensure(output.out, {rows.count(), shape(rows).width()}, qkv.dtype, ledger,
         MemoryUse::activations);
  backend.attention(output.out.slice(), output.log_sum_exp.slice(), qkv, shape(rows),
                    probability_mask(rows));
}

void SelfAttention::backward_input(Backend& backend, Slice dx, Slice dout,
                                   const AttentionStash& kept, LayerStash& gradients,
                                   const Rows& rows, Ledger& ledger,
                                   const Meanwhile& meanwhile) const {
  const Count all = rows.count();
  auto& [qkv, projected] = gradients.own<Gradients>();
  const Slice doutput = dx.first(all * shape(rows).width());
  parts_.projection->backward_input(backend, doutput, projected, dout, rows, projection_mask(rows),
                                    ledger);
  ensure(qkv, {all, shape(rows).qkv_width()}, dx.dtype, ledger, MemoryUse::activations);
  if (!parts_.projection->passes_gradient()) return run(meanwhile);
  attend_backward(backend, qkv.slice(), doutput, kept.operands.own<Operands>(),
                  kept.output.own<Output>(), rows);
  parts_.queries_keys_values->backward_input(backend, dx, qkv.slice(), rows, meanwhile);
}

void SelfAttention::attend_backward(Backend& backend, Slice dqkv, Slice dout,
                                    const Operands& operands, const Output& output,
                                    const Rows& rows) const {
  backend.attention_backward(dqkv, dout, output.out.slice(), output.log_sum_exp.slice(),
                             operands.qkv.slice(), shape(rows), probability_mask(rows));
}

void SelfAttention::backward_weight(Backend& backend, Slice dout, const AttentionStash& kept,
                                    const LayerStash& gradients, const Rows& rows) const {
  const auto& [dqkv, projected] = gradients.own<Gradients>();
  parts_.projection->backward_weight(backend, projected, dout,
                                     kept.output.own<Output>().out.slice(), rows);
  parts_.queries_keys_values->backward_weight(backend, dqkv.slice(),
                                              kept.operands.own<Operands>().input, rows);
}

}  // namespace lockstep
