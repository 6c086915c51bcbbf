#include "models/ops/roofline_backend.h"

#include <algorithm>

namespace lockstep {
namespace {

double bytes_of(Slice slice) { return static_cast<double>(slice.bytes()); }
double bytes_of(const Matrix& matrix) {
  return static_cast<double>(matrix.rows * matrix.columns * element_bytes(matrix.slice.dtype));
}

// Operations of one product of each query with all keys before it: a multiplication and an addition
// for each element.
double attention_product(const AttentionPart& part) {
  const Count pairs = part.heads * causal_pairs(part.queries, part.keys, part.documents,
                                                part.length, part.sequences);
  return 2 * static_cast<double>(pairs) * static_cast<double>(part.head_size);
}
double attention_product(const AttentionShape& s) {
  if (!s.documents.empty()) {
    const Positions all = Positions::all(s.length);
    return attention_product(AttentionPart{s.sequences, s.heads, s.head_size, s.kv_heads, all, all,
                                           s.length, s.documents});
  }
  const auto pairs = static_cast<double>(s.sequences * s.heads * s.length * (s.length + 1) / 2);
  return 2 * pairs * static_cast<double>(s.head_size);
}

}  // namespace

void RooflineBackend::take(double operations, double bytes, bool is_attention) {
  if (roofline_.only_attention && !is_attention) return;
  const double seconds =
      std::max(operations / roofline_.flops_per_s, bytes / roofline_.bytes_per_s);
  seconds_ += seconds;
  pass_(seconds);
}

void RooflineBackend::move(std::initializer_list<Slice> slices) {
  double bytes = 0;
  for (const Slice& slice : slices) bytes += bytes_of(slice);
  take(0, bytes);
}

void RooflineBackend::copy(const Matrix& into, const Matrix& from, double beta) {
  take(0, (beta == 0 ? 1 : 2) * bytes_of(into) + bytes_of(from));
}

void RooflineBackend::gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  const Count k = a.transposed ? a.rows : a.columns;
  take(2 * static_cast<double>(c.rows * c.columns) * static_cast<double>(k),
       bytes_of(a.slice) + bytes_of(b.slice) + (beta == 0 ? 1 : 2) * bytes_of(c.slice));
}

// Fused into the epilogue of the preceding product.
void RooflineBackend::add_bias(Slice, Slice base, Slice bias, Count) { move({base, bias}); }
void RooflineBackend::sum_rows(Slice sum, Slice x, Count) { move({sum, x}); }
void RooflineBackend::bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count,
                                       const Dropout&) {
  move({out, base, x, bias});
}
void RooflineBackend::dropout(Slice out, Slice x, Count, const Dropout&) { move({out, x}); }

void RooflineBackend::layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight,
                                 Slice bias, Count, double) {
  move({out, mean, rstd, x, weight, bias});
}
void RooflineBackend::layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x,
                                                Slice mean, Slice rstd, Slice weight, Count) {
  move({dx, base, dout, x, mean, rstd, weight});
}
void RooflineBackend::layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                                 Slice mean, Slice rstd, Count) {
  move({dweight, dbias, dout, x, mean, rstd});
}

void RooflineBackend::gelu(Slice out, Slice x) { move({out, x}); }
void RooflineBackend::gelu_backward(Slice dx, Slice dout, Slice x) { move({dx, dout, x}); }

// Two products of queries and keys in forward, five in backward.
void RooflineBackend::attention(Slice out, Slice log_sum_exp, Slice qkv,
                                const AttentionShape& shape, const Dropout&) {
  take(2 * attention_product(shape), bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(qkv), true);
}
void RooflineBackend::attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                                         Slice qkv, const AttentionShape& shape, const Dropout&) {
  take(5 * attention_product(shape),
       bytes_of(dqkv) + bytes_of(dout) + bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(qkv),
       true);
}

// A part whose queries see none of its keys reads nothing.
void RooflineBackend::attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                                     const Matrix& v, const AttentionPart& part, const Dropout&) {
  const double product = attention_product(part);
  if (product == 0) return move({out, log_sum_exp});
  take(2 * product, bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(q) + bytes_of(k) + bytes_of(v),
       true);
}
void RooflineBackend::merge_attention(Slice out, Slice log_sum_exp, Slice part_out,
                                      Slice part_log_sum_exp, const AttentionPart&) {
  move({out, out, log_sum_exp, log_sum_exp, part_out, part_log_sum_exp});
}
void RooflineBackend::attention_products(Slice products, Slice dout, Slice out,
                                         const AttentionPart&) {
  move({products, dout, out});
}
void RooflineBackend::attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                              Slice dout, Slice log_sum_exp, Slice products,
                                              const Matrix& q, const Matrix& k, const Matrix& v,
                                              const AttentionPart& part, const Dropout&) {
  const double product = attention_product(part);
  if (product == 0) return;
  double bytes = bytes_of(dout) + bytes_of(log_sum_exp) + bytes_of(products);
  for (const Matrix* read : {&q, &k, &v}) bytes += bytes_of(*read);
  for (const Matrix* added_to : {&dq, &dk, &dv}) bytes += 2 * bytes_of(*added_to);
  take(5 * product, bytes, true);
}

void RooflineBackend::embedding(Slice out, Slice, std::int32_t, std::span<const std::int32_t>) {
  move({out, out});
}
void RooflineBackend::embedding_backward(Slice, std::int32_t, Slice dout,
                                         std::span<const std::int32_t>) {
  move({dout, dout, dout});
}
void RooflineBackend::add_positions(Slice out, Slice, const RowPlaces&, Count) {
  move({out, out, out});
}
void RooflineBackend::positions_backward(Slice, Slice dout, const RowPlaces&, Count) {
  move({dout, dout, dout});
}

void RooflineBackend::gather_rows(Slice out, Slice, std::span<const std::int32_t>,
                                  std::span<const double>) {
  move({out, out});
}
void RooflineBackend::combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t>,
                                   std::span<const double>, Count) {
  move({out, base, x});
}
void RooflineBackend::row_products(Slice products, Slice, Slice x, std::span<const std::int32_t>,
                                   Count) {
  move({products, x, x});
}

double RooflineBackend::cross_entropy(Slice logits, std::span<const std::int32_t>, Count, double,
                                      double) {
  move({logits, logits});
  return 0;
}
void RooflineBackend::softmax_highest(Slice highest, Slice logits, Count) {
  move({highest, logits});
}
void RooflineBackend::softmax_sums(Slice sums, Slice logits, Slice highest,
                                   std::span<const std::int32_t>, std::int32_t, Count) {
  move({sums, logits, logits, highest});
}
double RooflineBackend::softmax_gradient(Slice logits, Slice sums, std::span<const std::int32_t>,
                                         std::int32_t, Count, Count, double, double) {
  move({logits, logits, sums});
  return 0;
}

void RooflineBackend::adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                            const AdamWStep&) {
  move({value, value, gradient, first_moment, first_moment, second_moment, second_moment});
}
void RooflineBackend::sgd(Slice value, Slice gradient, Slice momentum, const SgdStep&) {
  move({value, value, gradient, momentum, momentum});
}
double RooflineBackend::squared_norm(Slice x) {
  move({x});
  return 0;
}

}  // namespace lockstep
