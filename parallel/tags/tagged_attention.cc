// The operations of attention. Ranks may have different heads, which are columns. If they have
// different queries, they need the keys and values of all ranks.
#include "parallel/tags/tag_use.h"
#include "parallel/tags/tagged_backend.h"

namespace lockstep {

using AxisKind = TagAxis::Kind;

void TaggedBackend::attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                              const Dropout& dropout) {
  TagUse use(state_, "attention");
  const Tag tag = use.whole(qkv, "qkv");
  state_.refuse(tag, "qkv", [](const TagAxis& axis, Along along) {
    return axis.axis == Axis::cp && along == Along::rows;
  });
  use.write(out, tag);
  use.write(log_sum_exp, tag);
  inner_.attention(out, log_sum_exp, qkv, shape, dropout);
}

void TaggedBackend::attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                                       Slice qkv, const AttentionShape& shape,
                                       const Dropout& dropout) {
  TagUse use(state_, "attention_backward");
  use.write(dqkv, use.product(use.any(dout, "dout"), use.whole(qkv, "qkv"), "dout * qkv"));
  inner_.attention_backward(dqkv, dout, out, log_sum_exp, qkv, shape, dropout);
}

void TaggedBackend::attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                                   const Matrix& v, const AttentionPart& part,
                                   const Dropout& dropout) {
  TagUse use(state_, "attention_part");
  const Tag tag = use.product(use.whole(q, "q"), use.whole(k, "k"), "q * k");
  use.product(tag, use.whole(v, "v"), "q * v");
  state_.refuse(tag, "q", [](const TagAxis& axis, Along along) {
    return axis.kind == AxisKind::heads && along == Along::rows;
  });
  use.write(out, tag);
  use.write(log_sum_exp, tag);
  inner_.attention_part(out, log_sum_exp, q, k, v, part, dropout);
}

void TaggedBackend::merge_attention(Slice out, Slice log_sum_exp, Slice part_out,
                                    Slice part_log_sum_exp, const AttentionPart& part) {
  TagUse use(state_, "merge_attention");
  use.write(out, use.sum(use.any(out, "out"), use.any(part_out, "the part"), "out + the part"));
  inner_.merge_attention(out, log_sum_exp, part_out, part_log_sum_exp, part);
}

void TaggedBackend::attention_products(Slice products, Slice dout, Slice out,
                                       const AttentionPart& part) {
  TagUse use(state_, "attention_products");
  use.write(products, use.product(use.any(dout, "dout"), use.whole(out, "out"), "dout * out"));
  inner_.attention_products(products, dout, out, part);
}

void TaggedBackend::attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                            Slice dout, Slice log_sum_exp, Slice products,
                                            const Matrix& q, const Matrix& k, const Matrix& v,
                                            const AttentionPart& part, const Dropout& dropout) {
  TagUse use(state_, "attention_part_backward");
  const Tag of_q = use.product(use.any(dout, "dout"), use.whole(q, "q"), "dout * q");
  use.product(of_q, use.whole(products, "products"), "dout * products");
  Tag of_k = use.product(of_q, use.whole(k, "k"), "q * k");
  // Every rank has queries for these keys. The gradients of this rank's keys lie next to dq;
  // gradients from other ranks are added when they arrive.
  const bool is_own = dk.stride != part.kv_heads * part.head_size * 2;
  for (std::size_t axis = 0; axis < state_.axes().count(); ++axis)
    if (state_.axes()[axis].kind == AxisKind::tokens && !is_own)
      of_k[axis] = row_sum_of(of_q[axis]);
  use.add(dq.slice, of_q);
  use.add(dk.slice, of_k);
  use.add(dv.slice, of_k);
  inner_.attention_part_backward(dq, dk, dv, dout, log_sum_exp, products, q, k, v, part, dropout);
}

}  // namespace lockstep
