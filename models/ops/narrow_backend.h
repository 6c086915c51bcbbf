// Arithmetic on 16-bit data: every operation widens its inputs to f32, computes in f32, and rounds
// its results to nearest even. So sums are taken in f32 and rounded once.
#pragma once

#include <array>

#include "models/backend.h"
#include "models/ops/narrow_types.h"
#include "models/tensor.h"

namespace lockstep {

// Whether this processor has instructions for products of bf16.
bool host_multiplies_bf16();

// For one rank. Its widened copies are charged to `ledger` as workspace. Slices of other types are
// passed to `wide` unchanged.
class NarrowBackend : public Backend {
 public:
  // `multiplies_bf16`: products of bf16 need no widened copies.
  NarrowBackend(Backend& wide, Ledger& ledger, bool multiplies_bf16 = host_multiplies_bf16())
      : wide_(wide), ledger_(ledger), multiplies_bf16_(multiplies_bf16) {}

  std::string_view name() const override { return wide_.name(); }
  void copy(const Matrix& into, const Matrix& from, double beta) override {
    wide_.copy(into, from, beta);
  }
  void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) override;
  void add_bias(Slice out, Slice base, Slice bias, Count rows) override;
  void sum_rows(Slice sum, Slice x, Count rows) override;
  void bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                        const Dropout& dropout) override;
  void dropout(Slice out, Slice x, Count rows, const Dropout& which) override;
  void unpack(Slice out, Slice packed, const Packing& packing) override {
    const Slice wide = room(0, out);
    wide_.unpack(wide, packed, packing);
    if (wide.data != out.data) convert(out, wide);
  }
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
  // The exponentials have the logits' precision, and so has p in softmax_gradient, but not its loss.
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
  void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) override {
    wide_.axpby(out, a, x, b, y);
  }
  void singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                        Slice scratch) override {
    wide_.singular_vectors(of, left, right, scratch);
  }
  double squared_norm(Slice x) override;

 private:
  // Memory for one operand of the current operation, by the operand's number.
  Slice room(int operand, Slice like);
  // The operand in f32: itself if it has that type, otherwise a copy. An empty slice stays empty.
  Slice widened(int operand, Slice x);

  Backend& wide_;
  Ledger& ledger_;
  bool multiplies_bf16_;
  std::array<Tensor, 6> rooms_;
};

}  // namespace lockstep
