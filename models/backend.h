// The arithmetic that layers call, on slices of one type. A backend is a device's set of kernels.
//
// N rows (sequences times length), C columns; matrices are row-major and dense unless a stride is
// named. Gradients of parameters are added to (+=), everything else is overwritten (=), except
// where said.
#pragma once

#include <span>
#include <string_view>

#include "collectives/base/slice.h"

namespace lockstep {

// rows x columns elements from `slice`, `stride` elements from row to row.
struct Matrix {
  Slice slice;
  Count rows = 0, columns = 0, stride = 0;
  bool transposed = false;

  Matrix(Slice s, Count r, Count c) : slice(s), rows(r), columns(c), stride(c) {}
  // The same memory read as its transpose.
  Matrix t() const {
    Matrix other = *this;
    other.transposed = !transposed;
    return other;
  }
};

struct AttentionShape {
  Count sequences, length, heads, head_size;
  Count width() const { return heads * head_size; }
};

struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double gradient_scale;
  std::int64_t step;  // from 1, for the bias corrections
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // c = a b + beta c
  virtual void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) = 0;
  // out[r] = bias, or out[r] = base[r] + bias where base is given: what a gemm with beta 1 then
  // adds to.
  virtual void add_bias(Slice out, Slice base, Slice bias, Count rows) = 0;
  // sum += the sum over the rows of x.
  virtual void sum_rows(Slice sum, Slice x, Count rows) = 0;

  // out = (x - mean) rstd weight + bias over each row; keeps rstd[N] and mean[N].
  virtual void layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias,
                          Count rows, double epsilon) = 0;
  // dx = base + the gradient through the norm, base may be empty; dx may be base.
  virtual void layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean,
                                         Slice rstd, Slice weight, Count rows) = 0;
  virtual void layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                          Slice mean, Slice rstd, Count rows) = 0;

  // GELU in its tanh form. dx may be dout.
  virtual void gelu(Slice out, Slice x) = 0;
  virtual void gelu_backward(Slice dx, Slice dout, Slice x) = 0;

  // Causal attention. qkv[N, 3C] holds queries, keys, values side by side; out[N, C];
  // log_sum_exp[sequences, heads, length] is kept for the backward. Works in blocks of rows: memory
  // is linear in the length. Dao, "FlashAttention-2", 2023.
  virtual void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape) = 0;
  virtual void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                                  const AttentionShape& shape) = 0;

  // out[r] = tokens[inputs[r]] + positions[r mod length]
  virtual void embedding(Slice out, Slice tokens, Slice positions,
                         std::span<const std::int32_t> inputs, Count length) = 0;
  virtual void embedding_backward(Slice dtokens, Slice dpositions, Slice dout,
                                  std::span<const std::int32_t> inputs, Count length) = 0;

  // The sum over the rows of -log softmax(logits[r])[targets[r]]; logits become their gradient
  // times `scale`.
  virtual double cross_entropy(Slice logits, std::span<const std::int32_t> targets,
                               double scale) = 0;

  // Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, with bias corrections.
  virtual void adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                     const AdamWStep& step) = 0;
  // Sum of squares in f64; the same bits whatever the number of threads.
  virtual double squared_norm(Slice x) = 0;
};

// The processor's kernels, in the widest instructions it has. Uses as many threads as
// omp_set_num_threads() of the calling thread says.
Backend& host_backend();

}  // namespace lockstep
