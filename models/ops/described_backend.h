// A backend that describes every operation: its name, its arithmetic, the memory it accesses and its
// shape. A derived class decides what happens with it: charges its time to a clock, or measures it.
#pragma once

#include <functional>

#include "models/backend.h"
#include "models/ops/kernel_call.h"

namespace lockstep {

class DescribedBackend : public Backend {
 public:
  // `inner` computes and must outlive it; null: nothing is computed, and losses and norms are 0.
  // `fuses`: a product with an operation before or after it is one operation, as on GPUs.
  explicit DescribedBackend(Backend* inner, bool fuses = false) : inner_(inner), fuses_(fuses) {}

  void copy(const Matrix& into, const Matrix& from, double beta) override;
  void copy_each(const Matrices& into, const Matrices& from, double beta) override;
  void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) override;
  void gemm_bias(const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                 Slice bias) override;
  void gemm_bias_gelu(const Matrix& a, const Matrix& b, const Matrix& hidden, Slice activated,
                      Slice bias) override;
  void gemm_gelu_backward(const Matrix& a, const Matrix& b, const Matrix& c, Slice hidden) override;
  void add_bias(Slice out, Slice base, Slice bias, Count rows) override;
  void sum_rows(Slice sum, Slice x, Count rows) override;
  void bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                        const Dropout& dropout) override;
  void dropout(Slice out, Slice x, Count rows, const Dropout& dropout) override;
  void unpack(Slice out, Slice packed, const Packing& packing) override;
  void layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias, Count rows,
                  double epsilon) override;
  void layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean, Slice rstd,
                                 Slice weight, Count rows) override;
  void layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x, Slice mean,
                                  Slice rstd, Count rows) override;
  void scale(Slice x, double factor) override;
  void gelu(Slice out, Slice x) override;
  void gelu_backward(Slice dx, Slice dout, Slice x) override;
  void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                 const Dropout& dropout) override;
  void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                          const AttentionShape& shape, const Dropout& dropout) override;
  void attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                      const Matrix& v, const AttentionPart& part, const Dropout& dropout) override;
  void merge_attention(Slice out, Slice log_sum_exp, Slice part_out, Slice part_log_sum_exp,
                       const AttentionPart& part) override;
  void attention_products(Slice products, Slice dout, Slice out,
                          const AttentionPart& part) override;
  void attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv, Slice dout,
                               Slice log_sum_exp, Slice products, const Matrix& q, const Matrix& k,
                               const Matrix& v, const AttentionPart& part,
                               const Dropout& dropout) override;
  void embedding(Slice out, Slice tokens, std::int32_t first_token,
                 std::span<const std::int32_t> inputs) override;
  void embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                          std::span<const std::int32_t> inputs) override;
  void add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) override;
  void positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                          Count rows) override;
  void gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                   std::span<const double> factors) override;
  void combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                    std::span<const double> factors, Count tokens) override;
  void row_products(Slice products, Slice dout, Slice x, std::span<const std::int32_t> rows,
                    Count tokens) override;
  double cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                       double scale, double smoothing) override;
  void softmax_highest(Slice highest, Slice logits, Count real) override;
  void softmax_sums(Slice sums, Slice logits, Slice highest, std::span<const std::int32_t> targets,
                    std::int32_t first_column, Count real) override;
  double softmax_gradient(Slice logits, Slice sums, std::span<const std::int32_t> targets,
                          std::int32_t first_column, Count real, Count vocabulary, double scale,
                          double smoothing) override;
  void adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
             const AdamWStep& step) override;
  void sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) override;
  void nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                double gradient_scale) override;
  void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) override;
  void singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                        Slice scratch) override;
  double squared_norm(Slice x) override;

 protected:
  // Called for every operation. work() makes `inner` compute it; not to be called without one.
  virtual void run(const KernelCall& call, const std::function<void()>& work) = 0;

 private:
  Backend* inner_;
  const bool fuses_;
};

}  // namespace lockstep
