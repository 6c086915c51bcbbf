#include "models/ops/described_backend.h"

namespace lockstep {
void DescribedBackend::copy(const Matrix& into, const Matrix& from, double beta) {
  run(copying(beta == 0 ? "copy" : "copy_add", {into}, {from}, beta),
      [&] { inner_->copy(into, from, beta); });
}
void DescribedBackend::copy_each(const Matrices& into, const Matrices& from, double beta) {
  if (!fuses_) return Backend::copy_each(into, from, beta);
  run(copying(beta == 0 ? "copy_each" : "copy_each_add", into, from, beta),
      [&] { inner_->copy_each(into, from, beta); });
}

void DescribedBackend::gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  run(multiplying(product_name(a, b, beta), a, b, c, beta == 0 ? 0 : bytes_of(c.slice)),
      [&] { inner_->gemm(a, b, c, beta); });
}
void DescribedBackend::gemm_bias(const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                                 Slice bias) {
  if (!fuses_) return Backend::gemm_bias(a, b, c, base, bias);
  run(multiplying(base.count > 0 ? "gemm_bias_add" : "gemm_bias", a, b, c,
                  bytes_of(base) + bytes_of(bias)),
      [&] { inner_->gemm_bias(a, b, c, base, bias); });
}
void DescribedBackend::gemm_bias_gelu(const Matrix& a, const Matrix& b, const Matrix& hidden,
                                      Slice activated, Slice bias) {
  if (!fuses_) return Backend::gemm_bias_gelu(a, b, hidden, activated, bias);
  run(multiplying("gemm_bias_gelu", a, b, hidden, bytes_of(activated) + bytes_of(bias)),
      [&] { inner_->gemm_bias_gelu(a, b, hidden, activated, bias); });
}
void DescribedBackend::gemm_gelu_backward(const Matrix& a, const Matrix& b, const Matrix& c,
                                          Slice hidden) {
  if (!fuses_) return Backend::gemm_gelu_backward(a, b, c, hidden);
  run(multiplying("gemm_gelu_backward", a, b, c, bytes_of(hidden)),
      [&] { inner_->gemm_gelu_backward(a, b, c, hidden); });
}

// Fused into the epilogue of the preceding product.
void DescribedBackend::add_bias(Slice out, Slice base, Slice bias, Count rows) {
  run(moving("add_bias", {base, bias}), [&] { inner_->add_bias(out, base, bias, rows); });
}
void DescribedBackend::sum_rows(Slice sum, Slice x, Count rows) {
  run(moving("sum_rows", {sum, x}), [&] { inner_->sum_rows(sum, x, rows); });
}
void DescribedBackend::bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                                        const Dropout& dropout) {
  run(moving("bias_dropout_add", {out, base, x, bias}),
      [&] { inner_->bias_dropout_add(out, base, x, bias, rows, dropout); });
}
void DescribedBackend::dropout(Slice out, Slice x, Count rows, const Dropout& dropout) {
  run(moving("dropout", {out, x}), [&] { inner_->dropout(out, x, rows, dropout); });
}
void DescribedBackend::unpack(Slice out, Slice packed, const Packing& packing) {
  run(moving("unpack", {out, packed}), [&] { inner_->unpack(out, packed, packing); });
}
void DescribedBackend::layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight,
                                  Slice bias, Count rows, double epsilon) {
  run(moving("layer_norm", {out, mean, rstd, x, weight, bias}),
      [&] { inner_->layer_norm(out, mean, rstd, x, weight, bias, rows, epsilon); });
}
void DescribedBackend::layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x,
                                                 Slice mean, Slice rstd, Slice weight, Count rows) {
  run(moving("layer_norm_backward_input", {dx, base, dout, x, mean, rstd, weight}),
      [&] { inner_->layer_norm_backward_input(dx, base, dout, x, mean, rstd, weight, rows); });
}
void DescribedBackend::layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                                  Slice mean, Slice rstd, Count rows) {
  run(moving("layer_norm_backward_weight", {dweight, dbias, dout, x, mean, rstd}),
      [&] { inner_->layer_norm_backward_weight(dweight, dbias, dout, x, mean, rstd, rows); });
}
void DescribedBackend::scale(Slice x, double factor) {
  run(moving("scale", {x, x}), [&] { inner_->scale(x, factor); });
}
void DescribedBackend::gelu(Slice out, Slice x) {
  run(moving("gelu", {out, x}), [&] { inner_->gelu(out, x); });
}
void DescribedBackend::gelu_backward(Slice dx, Slice dout, Slice x) {
  run(moving("gelu_backward", {dx, dout, x}), [&] { inner_->gelu_backward(dx, dout, x); });
}

// Two products of queries and keys in forward, five in backward.
void DescribedBackend::attention(Slice out, Slice log_sum_exp, Slice qkv,
                                 const AttentionShape& shape, const Dropout& dropout) {
  KernelCall call = attending("attention", 2 * attention_product(shape), shape, qkv.dtype);
  call.bytes = bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(qkv);
  run(call, [&] { inner_->attention(out, log_sum_exp, qkv, shape, dropout); });
}
void DescribedBackend::attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                                          Slice qkv, const AttentionShape& shape,
                                          const Dropout& dropout) {
  KernelCall call = attending("attention_backward", 5 * attention_product(shape), shape, qkv.dtype);
  call.bytes =
      bytes_of(dqkv) + bytes_of(dout) + bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(qkv);
  run(call, [&] { inner_->attention_backward(dqkv, dout, out, log_sum_exp, qkv, shape, dropout); });
}

// A part whose queries see none of its keys reads nothing.
void DescribedBackend::attention_part(Slice out, Slice log_sum_exp, const Matrix& q,
                                      const Matrix& k, const Matrix& v, const AttentionPart& part,
                                      const Dropout& dropout) {
  const double product = attention_product(part);
  KernelCall call = moving("attention_part_unseen", {out, log_sum_exp});
  if (product > 0) {
    call = attending("attention_part", 2 * product, part, q.slice.dtype);
    call.bytes = bytes_of(out) + bytes_of(log_sum_exp) + bytes_of(q) + bytes_of(k) + bytes_of(v);
  }
  run(call, [&] { inner_->attention_part(out, log_sum_exp, q, k, v, part, dropout); });
}
void DescribedBackend::merge_attention(Slice out, Slice log_sum_exp, Slice part_out,
                                       Slice part_log_sum_exp, const AttentionPart& part) {
  run(moving("merge_attention", {out, out, log_sum_exp, log_sum_exp, part_out, part_log_sum_exp}),
      [&] { inner_->merge_attention(out, log_sum_exp, part_out, part_log_sum_exp, part); });
}
void DescribedBackend::attention_products(Slice products, Slice dout, Slice out,
                                          const AttentionPart& part) {
  run(moving("attention_products", {products, dout, out}),
      [&] { inner_->attention_products(products, dout, out, part); });
}
void DescribedBackend::attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                               Slice dout, Slice log_sum_exp, Slice products,
                                               const Matrix& q, const Matrix& k, const Matrix& v,
                                               const AttentionPart& part, const Dropout& dropout) {
  const double product = attention_product(part);
  KernelCall call = moving("attention_part_backward_unseen", {});
  if (product > 0) {
    call = attending("attention_part_backward", 5 * product, part, q.slice.dtype);
    call.bytes = bytes_of(dout) + bytes_of(log_sum_exp) + bytes_of(products);
    for (const Matrix* read : {&q, &k, &v}) call.bytes += bytes_of(*read);
    for (const Matrix* added_to : {&dq, &dk, &dv}) call.bytes += 2 * bytes_of(*added_to);
  }
  run(call, [&] {
    inner_->attention_part_backward(dq, dk, dv, dout, log_sum_exp, products, q, k, v, part,
                                    dropout);
  });
}
void DescribedBackend::embedding(Slice out, Slice tokens, std::int32_t first_token,
                                 std::span<const std::int32_t> inputs) {
  run(moving("embedding", {out, out}),
      [&] { inner_->embedding(out, tokens, first_token, inputs); });
}
void DescribedBackend::embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                                          std::span<const std::int32_t> inputs) {
  run(moving("embedding_backward", {dout, dout, dout}),
      [&] { inner_->embedding_backward(dtokens, first_token, dout, inputs); });
}
void DescribedBackend::add_positions(Slice out, Slice positions, const RowPlaces& places,
                                     Count rows) {
  run(moving("add_positions", {out, out, out}),
      [&] { inner_->add_positions(out, positions, places, rows); });
}
void DescribedBackend::positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                                          Count rows) {
  run(moving("positions_backward", {dout, dout, dout}),
      [&] { inner_->positions_backward(dpositions, dout, places, rows); });
}
void DescribedBackend::gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                                   std::span<const double> factors) {
  run(moving("gather_rows", {out, out}), [&] { inner_->gather_rows(out, x, tokens, factors); });
}
void DescribedBackend::combine_rows(Slice out, Slice base, Slice x,
                                    std::span<const std::int32_t> rows,
                                    std::span<const double> factors, Count tokens) {
  run(moving("combine_rows", {out, base, x}),
      [&] { inner_->combine_rows(out, base, x, rows, factors, tokens); });
}
void DescribedBackend::row_products(Slice products, Slice dout, Slice x,
                                    std::span<const std::int32_t> rows, Count tokens) {
  run(moving("row_products", {products, x, x}),
      [&] { inner_->row_products(products, dout, x, rows, tokens); });
}
double DescribedBackend::cross_entropy(Slice logits, std::span<const std::int32_t> targets,
                                       Count real, double scale, double smoothing) {
  double result = 0;
  run(answering("cross_entropy", {logits, logits}),
      [&] { result = inner_->cross_entropy(logits, targets, real, scale, smoothing); });
  return result;
}
void DescribedBackend::softmax_highest(Slice highest, Slice logits, Count real) {
  run(moving("softmax_highest", {highest, logits}),
      [&] { inner_->softmax_highest(highest, logits, real); });
}
void DescribedBackend::softmax_sums(Slice sums, Slice logits, Slice highest,
                                    std::span<const std::int32_t> targets,
                                    std::int32_t first_column, Count real) {
  run(moving("softmax_sums", {sums, logits, logits, highest}),
      [&] { inner_->softmax_sums(sums, logits, highest, targets, first_column, real); });
}
double DescribedBackend::softmax_gradient(Slice logits, Slice sums,
                                          std::span<const std::int32_t> targets,
                                          std::int32_t first_column, Count real, Count vocabulary,
                                          double scale, double smoothing) {
  double result = 0;
  run(answering("softmax_gradient", {logits, logits, sums}), [&] {
    result = inner_->softmax_gradient(logits, sums, targets, first_column, real, vocabulary, scale,
                                      smoothing);
  });
  return result;
}
void DescribedBackend::adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                             const AdamWStep& step) {
  run(moving("adamw",
             {value, value, gradient, first_moment, first_moment, second_moment, second_moment}),
      [&] { inner_->adamw(value, gradient, first_moment, second_moment, step); });
}
void DescribedBackend::sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) {
  run(moving("sgd", {value, value, gradient, momentum, momentum}),
      [&] { inner_->sgd(value, gradient, momentum, step); });
}
void DescribedBackend::nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                                double gradient_scale) {
  run(moving("nesterov", {direction, gradient, momentum, momentum}),
      [&] { inner_->nesterov(direction, gradient, momentum, keep, gradient_scale); });
}
void DescribedBackend::axpby(const Matrix& out, double a, const Matrix& x, double b,
                             const Matrix& y) {
  const auto elements = [](const Matrix& matrix) {
    return Slice{.count = matrix.rows * matrix.columns, .dtype = matrix.slice.dtype};
  };
  run(moving("axpby", {elements(out), elements(x), elements(y)}),
      [&] { inner_->axpby(out, a, x, b, y); });
}
// The fewest operations: vectors of the smaller side.
void DescribedBackend::singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                                        Slice scratch) {
  const auto side = static_cast<double>(std::min(of.rows, of.columns));
  run({.name = "singular_vectors",
       .dtype = DType::f64,
       .operations = 2 * side * side * static_cast<double>(std::max(of.rows, of.columns)),
       .bytes = bytes_of(of) + bytes_of(left) + bytes_of(right),
       .shape = {of.rows, of.columns},
       .waits = true},
      [&] { inner_->singular_vectors(of, left, right, scratch); });
}
double DescribedBackend::squared_norm(Slice x) {
  double result = 0;
  run(answering("squared_norm", {x}), [&] { result = inner_->squared_norm(x); });
  return result;
}

}  // namespace lockstep
