// The host's kernels, for float and double. Each .cc next to this header instantiates its own.
#pragma once

#include <cstdint>

#include "models/backend.h"

namespace lockstep::host {

void sgemm(bool transpose_a, bool transpose_b, Count m, Count n, Count k, const float* a, Count lda,
           const float* b, Count ldb, float beta, float* c, Count ldc);
void dgemm(bool transpose_a, bool transpose_b, Count m, Count n, Count k, const double* a,
           Count lda, const double* b, Count ldb, double beta, double* c, Count ldc);

inline void gemm(bool ta, bool tb, Count m, Count n, Count k, const float* a, Count lda,
                 const float* b, Count ldb, float beta, float* c, Count ldc) {
  sgemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
inline void gemm(bool ta, bool tb, Count m, Count n, Count k, const double* a, Count lda,
                 const double* b, Count ldb, double beta, double* c, Count ldc) {
  dgemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

// Between any two floating-point types.
void copy(const Matrix& into, const Matrix& from, bool adds);
template <typename T>
void add_bias(T* out, const T* base, const T* bias, Count rows, Count columns);
template <typename T>
void sum_rows(T* sum, const T* x, Count rows, Count columns);
template <typename T>
void bias_dropout_add(T* out, const T* base, const T* x, const T* bias, Count rows, Count columns,
                      const Dropout& dropout);
template <typename T>
void dropout(T* out, const T* x, Count rows, Count columns, const Dropout& which);
template <typename T>
void unpack(T* out, const std::byte* packed, Count groups, const Packing& packing);
template <typename T>
void layer_norm(T* out, T* mean, T* rstd, const T* x, const T* weight, const T* bias, Count rows,
                Count columns, T epsilon);
template <typename T>
void layer_norm_backward_input(T* dx, const T* base, const T* dout, const T* x, const T* mean,
                               const T* rstd, const T* weight, Count rows, Count columns);
template <typename T>
void layer_norm_backward_weight(T* dweight, T* dbias, const T* dout, const T* x, const T* mean,
                                const T* rstd, Count rows, Count columns);
template <typename T>
void gelu(T* out, const T* x, Count count);
template <typename T>
void scale(T* x, Count count, T factor);
template <typename T>
void gelu_backward(T* dx, const T* dout, const T* x, Count count);
// Like the functions of Backend. 16-bit data are computed in f32, block by block.
void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
               const Dropout& dropout);
void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                        const AttentionShape& shape, const Dropout& dropout);
void attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k, const Matrix& v,
                    const AttentionPart& part, const Dropout& dropout);
void attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv, Slice dout,
                             Slice log_sum_exp, Slice products, const Matrix& q, const Matrix& k,
                             const Matrix& v, const AttentionPart& part, const Dropout& dropout);
void attention_products(Slice products, Slice dout, Slice out, const AttentionPart& part);
// Bytes that a thread takes for a forward or a backward, in addition to arguments and products.
Count attention_scratch_bytes(const AttentionShape& shape, DType dtype);
template <typename T>
void merge_attention(T* out, T* log_sum_exp, const T* part_out, const T* part_log_sum_exp,
                     const AttentionPart& part);

// Rows of any type, as bytes: `here` rows of the table, from first_token on.
void embedding(std::byte* out, const std::byte* tokens, std::int32_t first_token, Count here,
               const std::int32_t* inputs, Count rows, Count row_bytes);
template <typename T>
void embedding_backward(T* dtokens, std::int32_t first_token, Count here, const T* dout,
                        const std::int32_t* inputs, Count rows, Count columns);
template <typename T>
void add_positions(T* out, const T* positions, const RowPlaces& places, Count rows, Count columns);
template <typename T>
void positions_backward(T* dpositions, const T* dout, const RowPlaces& places, Count rows,
                        Count columns);
// No factors: null.
template <typename T>
void gather_rows(T* out, const T* x, const std::int32_t* tokens, const double* factors, Count rows,
                 Count columns);
template <typename T>
void combine_rows(T* out, const T* base, const T* x, const std::int32_t* rows,
                  const double* factors, Count tokens, Count per_token, Count columns);
template <typename T>
void row_products(T* products, const T* dout, const T* x, const std::int32_t* rows, Count tokens,
                  Count per_token, Count columns);
template <typename T>
double cross_entropy(T* logits, const std::int32_t* targets, Count rows, Count columns, Count real,
                     T scale, double smoothing);
template <typename T>
void softmax_highest(T* highest, const T* logits, Count rows, Count columns, Count real);
template <typename T>
void softmax_sums(T* sums, T* logits, const T* highest, const std::int32_t* targets,
                  Count first_column, Count rows, Count columns, Count real, bool with_logits);
template <typename T>
double softmax_gradient(T* logits, const T* sums, const std::int32_t* targets, Count first_column,
                        Count rows, Count columns, Count real, Count vocabulary, T scale,
                        double smoothing);
template <typename T>
void adamw(T* value, const T* gradient, T* first, T* second, Count count, const AdamWStep& step);
template <typename T>
void sgd(T* value, const T* gradient, T* momentum, Count count, const SgdStep& step);
template <typename T>
void nesterov(T* direction, const T* gradient, T* momentum, Count count, double keep, double scale);
template <typename T>
void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y);
template <typename T>
double squared_norm(const T* x, Count count);

}  // namespace lockstep::host
