// The kernels' interface for the host: takes slices, and enqueues into a stream. Each .cu next to
// this header implements some. Shapes and meanings are those of models/backend.h. Types are f64,
// f32, bf16 and f16, the same for all slices of a call unless stated otherwise.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "models/backend.h"

namespace lockstep::cuda {

// rows.cu
// into = from, or into += from, between any two of the four types.
void copy(cudaStream_t stream, const Matrices& into, const Matrices& from, bool adds);
void add_bias(cudaStream_t stream, Slice out, Slice base, Slice bias, Count rows);
void bias_dropout_add(cudaStream_t stream, Slice out, Slice base, Slice x, Slice bias, Count rows,
                      const Dropout& dropout);
void dropout(cudaStream_t stream, Slice out, Slice x, Count rows, const Dropout& which);
void unpack(cudaStream_t stream, Slice out, Slice packed, const Packing& packing);
void add_positions(cudaStream_t stream, Slice out, Slice positions, const RowPlaces& places,
                   Count rows);
// `inputs` is on the device.
void embedding(cudaStream_t stream, Slice out, Slice tokens, std::int32_t first_token,
               const std::int32_t* inputs, Count rows);

// layer_norm.cu; means and rstds have the type statistics_type().
void layer_norm(cudaStream_t stream, Slice out, Slice mean, Slice rstd, Slice x, Slice weight,
                Slice bias, Count rows, double epsilon);
void layer_norm_backward_input(cudaStream_t stream, Slice dx, Slice base, Slice dout, Slice x,
                               Slice mean, Slice rstd, Slice weight, Count rows);

// columns.cu: sums over rows, first of parts, then of the parts, always in the same order. `parts`
// is memory of column_parts_bytes().
Count column_parts_bytes(Count rows, Count columns, DType dtype, int sums);
void sum_rows(cudaStream_t stream, Slice sum, Slice x, Count rows, void* parts);
void layer_norm_backward_weight(cudaStream_t stream, Slice dweight, Slice dbias, Slice dout,
                                Slice x, Slice mean, Slice rstd, Count rows, void* parts);
void positions_backward(cudaStream_t stream, Slice dpositions, Slice dout, const RowPlaces& places,
                        Count rows);

// embedding_backward.cu. Which rows of dout belong to which row of the table, sorted by the latter.
// Made on the host, which has the tokens.
struct EmbeddingPlan {
  // Rows begin .. end - 1 of `order` add to `row` of the table: directly if it has no other part
  // (slot -1), otherwise through the slot of that number.
  struct Part {
    std::int32_t begin, end, row, slot;
  };
  // Slots first .. last - 1 add to `row`, in order.
  struct Joint {
    std::int32_t row, first, last;
  };
  std::vector<std::int32_t> order;
  std::vector<Part> parts;
  std::vector<Joint> joints;
  Count slots = 0;
};
EmbeddingPlan plan_embedding_backward(std::span<const std::int32_t> inputs,
                                      std::int32_t first_token, Count table_rows);
// The arrays are the plan's, on the device. `slots` has room for that many rows of statistics_type().
void embedding_backward(cudaStream_t stream, Slice dtokens, Slice dout, Count columns,
                        const std::int32_t* order, const EmbeddingPlan::Part* parts,
                        Count part_count, const EmbeddingPlan::Joint* joints, Count joint_count,
                        void* slots);

// expert_rows.cu; `tokens`, `rows` and `factors` are on the device, products have the type
// statistics_type(). No factors: null.
void gather_rows(cudaStream_t stream, Slice out, Slice x, const std::int32_t* tokens,
                 const double* factors, Count rows);
void combine_rows(cudaStream_t stream, Slice out, Slice base, Slice x, const std::int32_t* rows,
                  const double* factors, Count tokens, Count per_token);
void row_products(cudaStream_t stream, Slice products, Slice dout, Slice x,
                  const std::int32_t* rows, Count tokens, Count per_token);

// elementwise.cu
void scale(cudaStream_t stream, Slice x, double factor);
void gelu(cudaStream_t stream, Slice out, Slice x);
void gelu_backward(cudaStream_t stream, Slice dx, Slice dout, Slice x);
// Value and states are f64 for a gradient of f64, otherwise f32 for one of f32, bf16 or f16.
void adamw(cudaStream_t stream, Slice value, Slice gradient, Slice first_moment,
           Slice second_moment, const AdamWStep& step);
void sgd(cudaStream_t stream, Slice value, Slice gradient, Slice momentum, const SgdStep& step);
void nesterov(cudaStream_t stream, Slice direction, Slice gradient, Slice momentum, double keep,
              double gradient_scale);
void axpby(cudaStream_t stream, const Matrix& out, double a, const Matrix& x, double b,
           const Matrix& y);
// into = from, between any two of the four types.
void convert(cudaStream_t stream, Slice into, Slice from);
// *sum = the sum of squares; `parts` is memory of squared_norm_parts doubles. Both on the device.
inline constexpr std::uint32_t squared_norm_parts = 1024;
void squared_norm(cudaStream_t stream, double* sum, Slice x, double* parts);
// *sum = values[0] + ..., in an order that depends only on `count`. Both on the device.
void sum_doubles(cudaStream_t stream, double* sum, const double* values, Count count);

// cross_entropy.cu; `targets` is on the device, and so is `losses`, one double per row.
void cross_entropy(cudaStream_t stream, double* losses, Slice logits, const std::int32_t* targets,
                   Count rows, Count real, double scale, double smoothing);
void softmax_highest(cudaStream_t stream, Slice highest, Slice logits, Count real);
void softmax_sums(cudaStream_t stream, Slice sums, Slice logits, Slice highest,
                  const std::int32_t* targets, Count rows, Count first_column, Count real);
void softmax_gradient(cudaStream_t stream, double* losses, Slice logits, Slice sums,
                      const std::int32_t* targets, Count rows, Count first_column, Count real,
                      Count vocabulary, double scale, double smoothing);

// first_keys.cu. Which keys each query sees, on the device.
struct SeenKeys {
  const std::int32_t* first =
      nullptr;                        // [sequences, queries], the first key; without documents null
  const std::int32_t* end = nullptr;  // [queries], of a part: the last key, plus 1
};
// Here the documents are on the device.
void find_first_keys(cudaStream_t stream, std::int32_t* first, const AttentionPart& part);
void find_key_ends(cudaStream_t stream, std::int32_t* end, const AttentionPart& part);

// attention.cu
void attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice qkv,
               const AttentionShape& shape, const std::int32_t* first_keys, const Dropout& dropout);
// `products` is memory for as many statistics as log_sum_exp has.
void attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                        Slice qkv, const AttentionShape& shape, const std::int32_t* first_keys,
                        const Dropout& dropout, void* products);
void attention_part(cudaStream_t stream, Slice out, Slice log_sum_exp, const Matrix& q,
                    const Matrix& k, const Matrix& v, const AttentionPart& part,
                    const SeenKeys& seen, const Dropout& dropout);
void attention_part_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                             const Matrix& dv, Slice dout, Slice log_sum_exp, Slice products,
                             const Matrix& q, const Matrix& k, const Matrix& v,
                             const AttentionPart& part, const SeenKeys& seen,
                             const Dropout& dropout);

// attention_part.cu
void merge_attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice part_out,
                     Slice part_log_sum_exp, const AttentionPart& part);

}  // namespace lockstep::cuda
