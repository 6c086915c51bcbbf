// The arithmetic that layers call, on slices of one type. A backend is a device's set of kernels.
//
// N rows (sequences times length), C columns. Matrices are row-major and dense unless they have a
// stride. Gradients of parameters are added to (+=); everything else is overwritten (=) unless
// stated otherwise.
#pragma once

#include <span>
#include <string_view>

#include "collectives/base/slice.h"
#include "models/packing.h"
#include "models/positions.h"
#include "models/routing.h"

namespace lockstep {

class Parameters;
enum class ParameterSet : std::uint8_t;

// rows x columns elements from `slice`, `stride` elements from row to row.
struct Matrix {
  Slice slice;
  Count rows = 0, columns = 0, stride = 0;
  bool transposed = false;

  Matrix(Slice s, Count r, Count c) : slice(s), rows(r), columns(c), stride(c) {}
  // Columns first .. first + count - 1 of all rows.
  Matrix columns_from(Count first, Count count) const {
    Matrix part(slice.part(first, (rows - 1) * stride + count), rows, count);
    part.stride = stride;
    return part;
  }
  // Rows first .. first + count - 1.
  Matrix rows_from(Count first, Count count) const {
    Matrix part(slice.part(first * stride, (count - 1) * stride + columns), count, columns);
    part.stride = stride;
    return part;
  }
  // The same memory as its transpose.
  Matrix t() const {
    Matrix other = *this;
    other.transposed = !transposed;
    return other;
  }
};

// Several matrices of the same shape, whose memory begins `distance` elements apart.
struct Matrices {
  Matrix first;
  Count number = 1, distance = 0;

  Count elements() const { return number * first.rows * first.columns; }
  Matrix operator[](Count i) const {
    Matrix matrix = first;
    matrix.slice.data += i * distance * element_bytes(first.slice.dtype);
    return matrix;
  }
};

struct AttentionShape {
  Count sequences, length, heads, head_size;
  // heads / kv_heads consecutive query heads share a key/value head. Ainslie et al., "GQA", 2023.
  Count kv_heads;
  // A query sees only keys of its own document. Empty: each sequence is one.
  Documents documents = {};
  constexpr Count width() const { return heads * head_size; }
  constexpr Count kv_width() const { return kv_heads * head_size; }
  constexpr Count qkv_width() const { return width() + 2 * kv_width(); }
};

// Some queries and some keys of causal attention. Context parallelism cuts sequences, so that queries
// attend to their keys in several parts.
struct AttentionPart {
  Count sequences, heads, head_size, kv_heads;
  Positions queries, keys;   // of the rows of each sequence; the same in all sequences
  Count length;              // of the whole sequence, for dropout's indices and documents
  Documents documents = {};  // as in AttentionShape
};

// Dropout keeps some elements, divided by 1 - rate; the others become 0. Srivastava et al.,
// "Dropout", 2014. The choice depends only on the element's place in the whole batch and model. So
// any rank can draw it again at any time, and no mask is kept.
//
// Element (r, c) of a tensor [rows, columns] has the index(r, columns) + c. In attention, the
// probability of head h and the key at position k, for the query at position p of sequence s, has
// the index ((first_row + s length + p) all_heads + first_head + h) length + k.
struct Dropout {
  double rate = 0;  // 0, which keeps all, to below 1
  std::uint64_t seed = 0;
  std::int64_t stream = 0;                  // identifies the step, the layer and the place in it
  Count first_row = 0;                      // of the tensor's first sequence, in the whole batch
  Count first_head = 0, all_heads = 0;      // of this tensor's heads among the model's heads
  RowPlaces places = {};                    // of the tensor's rows, from first_row on
  Count first_column = 0, all_columns = 0;  // of the tensor's columns; 0: it has all of them

  constexpr Count index(Count r, Count columns) const {
    return (first_row + places(r)) * (all_columns > 0 ? all_columns : columns) + first_column;
  }
};

struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double gradient_scale;
  std::int64_t step;  // from 1, for the bias corrections
};

struct SgdStep {
  double learning_rate, momentum, weight_decay;
  double gradient_scale;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Parameters of the model that it computes: a backend that checks its operands finds them. Called for
  // each set.
  virtual void observe(const Parameters& /*parameters*/, ParameterSet /*set*/) {}

  // into = from + beta into, for beta 0 or 1; rounds if their types differ.
  virtual void copy(const Matrix& into, const Matrix& from, double beta) = 0;
  // The same for as many matrices as there are.
  virtual void copy_each(const Matrices& into, const Matrices& from, double beta) {
    for (Count i = 0; i < into.number; ++i) copy(into[i], from[i], beta);
  }
  // c = a b + beta c
  virtual void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) = 0;
  // out[r] = bias, or out[r] = base[r] + bias if base is given. A gemm with beta 1 can then add to
  // it.
  virtual void add_bias(Slice out, Slice base, Slice bias, Count rows) = 0;

  // A product with an operation before or after it. A device with one kernel for both overrides
  // these functions, and may round less often.
  //
  // c = base + a b + bias; base may be empty.
  virtual void gemm_bias(const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                         Slice bias) {
    add_bias(c.slice, base, bias, c.rows);
    gemm(a, b, c, 1);
  }
  // hidden = a b + bias; activated = GELU(hidden)
  virtual void gemm_bias_gelu(const Matrix& a, const Matrix& b, const Matrix& hidden,
                              Slice activated, Slice bias) {
    gemm_bias(a, b, hidden, {}, bias);
    gelu(activated, hidden.slice);
  }
  // c = the gradient of `hidden`; a b is the gradient of GELU(hidden)
  virtual void gemm_gelu_backward(const Matrix& a, const Matrix& b, const Matrix& c, Slice hidden) {
    gemm(a, b, c, 0);
    gelu_backward(c.slice, c.slice, hidden);
  }

  // out = the numbers of a packed matrix: see packing.h.
  virtual void unpack(Slice out, Slice packed, const Packing& packing) = 0;

  // x = factor x
  virtual void scale(Slice x, double factor) = 0;
  // sum += the sum of x over its rows.
  virtual void sum_rows(Slice sum, Slice x, Count rows) = 0;
  // out = base + dropout(x + bias); base may be empty; out may be x or base.
  virtual void bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                                const Dropout& dropout) = 0;
  // out = dropout(x), which is also its backward; out may be x.
  virtual void dropout(Slice out, Slice x, Count rows, const Dropout& dropout) = 0;

  // out = (x - mean) rstd weight + bias for each row; keeps rstd[N] and mean[N].
  virtual void layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias,
                          Count rows, double epsilon) = 0;
  // dx = base + the gradient through the norm. base may be empty; dx may be base.
  virtual void layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean,
                                         Slice rstd, Slice weight, Count rows) = 0;
  virtual void layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                          Slice mean, Slice rstd, Count rows) = 0;

  // GELU in its tanh form. dx may be dout.
  virtual void gelu(Slice out, Slice x) = 0;
  virtual void gelu_backward(Slice dx, Slice dout, Slice x) = 0;

  // Causal attention. qkv[N, qkv_width] holds queries, keys, values next to each other; out[N,
  // width]; log_sum_exp[sequences, heads, length] is kept for backward. Dropout applies to the
  // softmax's probabilities. Works in blocks of rows: memory is linear in the length. Dao,
  // "FlashAttention-2", 2023.
  virtual void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                         const Dropout& dropout) = 0;
  virtual void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                                  const AttentionShape& shape, const Dropout& dropout) = 0;

  // The same for a part of the keys: a query sees the keys up to its own position. Each sequence has
  // L queries and K keys; q[sequences L, width] and k, v[sequences K, kv_width] have strides;
  // out[sequences L, width] and log_sum_exp[sequences, heads, L] are dense. Results have the type
  // statistics_type(), because they are merged. They ignore all other keys: a query that sees none
  // of these keys gets out 0 and log_sum_exp -infinity. The cost is proportional to causal_pairs(),
  // so it is zero if no query sees a key.
  virtual void attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                              const Matrix& v, const AttentionPart& part,
                              const Dropout& dropout) = 0;
  // Merges a part's result with that of other keys: afterwards (out, log_sum_exp) covers the keys of
  // both. A log_sum_exp of -infinity means no keys, with any `out`. Liu, Zaharia and Abbeel, "Ring
  // attention", 2023.
  virtual void merge_attention(Slice out, Slice log_sum_exp, Slice part_out, Slice part_log_sum_exp,
                               const AttentionPart& part) = 0;
  // products[sequences, heads, L] = the sums over each head of dout * out, which backward of every
  // part needs. dout and out have the same type, products its statistics_type().
  virtual void attention_products(Slice products, Slice dout, Slice out,
                                  const AttentionPart& part) = 0;
  // Adds a part's gradients to dq, dk and dv, of type statistics_type(), given the log_sum_exp and
  // the products of the merged result.
  virtual void attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                       Slice dout, Slice log_sum_exp, Slice products,
                                       const Matrix& q, const Matrix& k, const Matrix& v,
                                       const AttentionPart& part, const Dropout& dropout) = 0;

  // out[r] = tokens[inputs[r] - first_token], or zeros if `tokens`, a part of the table, does not
  // have that row. So the results of all parts add up to the whole.
  virtual void embedding(Slice out, Slice tokens, std::int32_t first_token,
                         std::span<const std::int32_t> inputs) = 0;
  virtual void embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                                  std::span<const std::int32_t> inputs) = 0;
  // out[r] += positions[places.position(r)]
  virtual void add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) = 0;
  virtual void positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                                  Count rows) = 0;

  // Rows that go to experts and back. A token has K rows somewhere in a tensor of rows; negative
  // numbers stand for none.
  //
  // out[r] = x[tokens[r]], times factors[r] if there are factors.
  virtual void gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                           std::span<const double> factors) = 0;
  // out[t] = base[t] + the sum over k of x[rows[t, k]], times factors[t, k] if there are factors, in
  // this order. base may be empty; out may be base.
  virtual void combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                            std::span<const double> factors, Count tokens) = 0;
  // products[t, k] = the sum of dout[t] * x[rows[t, k]]. They have statistics_type().
  virtual void row_products(Slice products, Slice dout, Slice x, std::span<const std::int32_t> rows,
                            Count tokens) = 0;
  // A gradient gets the sum over none of x's rows. Changes nothing, but a backend that checks where
  // gradients come from sees that this one is complete.
  virtual void add_no_rows(Slice /*gradient*/, Slice /*x*/) {}
  // Router::choose() for scores[N, E], and Router::backward() to dscores[N, E]. Waits for a device
  // to compute the scores. Devices that compute nothing choose as assumed.
  virtual Routing route(const Router& router, Slice scores, Count sequences);
  virtual void route_backward(const Router& router, Slice dscores, Slice scores, Slice products,
                              const Routing& routing, Count sequences, double scale);

  // The sum over the rows of -sum_k q_k log p_k, where p is the row's softmax. The logits become
  // their gradient (p - q) scale. Rows with no_target add nothing and get gradient 0. q is the target
  // alone; with smoothing a > 0 and V columns it is e / V for each token, e = a V / (V - 1), plus
  // 1 - e for the target. Szegedy et al., "Rethinking the Inception architecture", 2016; e as in
  // Megatron-LM.
  // Only the first `real` columns exist; the rest is padding, which is not touched.
  virtual double cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                               double scale, double smoothing) = 0;

  // The same in three steps, for logits whose columns are split over ranks. These are the columns
  // from first_column on. The first `real` of them exist (maybe none), the rest is padding. Shoeybi
  // et al., "Megatron-LM", 2019. Statistics of rows have the type statistics_type().
  //
  // highest[N] of each row; the type's lowest number if no column is real. Then reduce over ranks.
  virtual void softmax_highest(Slice highest, Slice logits, Count real) = 0;
  // Logits become exp(z - highest), padding 0. sums[2, N], or [3, N] for smoothing: of the
  // exponentials; of the target's z - highest, if it is here; of all z - highest.
  virtual void softmax_sums(Slice sums, Slice logits, Slice highest,
                            std::span<const std::int32_t> targets, std::int32_t first_column,
                            Count real) = 0;
  // Given the sums over all ranks and the result of softmax_sums: returns the loss of the whole
  // rows. Logits become their gradient; padding stays 0.
  virtual double softmax_gradient(Slice logits, Slice sums, std::span<const std::int32_t> targets,
                                  std::int32_t first_column, Count real, Count vocabulary,
                                  double scale, double smoothing) = 0;

  // Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, with bias corrections.
  virtual void adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                     const AdamWStep& step) = 0;
  // Stochastic gradient descent: see models/optimizers/sgd.h. Without momentum its slice is empty.
  virtual void sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) = 0;
  // Nesterov's direction d of a gradient g, and the momentum m it needs: m = keep m + (1 - keep) g,
  // then d = keep m + (1 - keep) g, with g times `gradient_scale` in both. For keep = 0, d is g, and the
  // momentum may be empty.
  virtual void nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                        double gradient_scale) = 0;
  // out = a x + b y for operands of one type, f32 or f64. out may be x or y; y may be empty.
  virtual void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) = 0;
  // The first singular vectors of a dense matrix `of`, f32 or f64: left[rows, rank] and right[rank,
  // columns], dense; one of the two may be empty. As models/ops/singular_vectors.h says, which also says
  // how many f64 numbers of scratch it needs. Waits for a device, which copies to the host.
  virtual void singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                                Slice scratch) = 0;
  // Sum of squares in f64. The bits do not depend on the number of threads.
  virtual double squared_norm(Slice x) = 0;
};

// The processor's kernels, with its widest instructions. Uses as many threads as the calling thread
// has set with omp_set_num_threads().
Backend& host_backend();

}  // namespace lockstep
