// The host's backend: turns slices into typed pointers and calls the kernels. The only place in
// models/ that looks at types.
#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "models/ops/kernels.h"
#include "models/ops/singular_vectors.h"

namespace lockstep {
namespace {

// Calls function(T{}) for the types that have kernels.
template <typename Function>
void with_real(DType dtype, Function function) {
  if (dtype == DType::f32) return function(float{});
  if (dtype == DType::f64) return function(double{});
  require(false, fmt::format("the host's kernels do not compute in {}", name_of(dtype)),
          "choose f32 or f64");
}

template <typename T>
T* at(Slice slice) {
  return reinterpret_cast<T*>(slice.data);
}

class HostBackend final : public Backend {
 public:
  // Ranks and OpenMP divide the cores; threads of BLAS would oversubscribe them.
  HostBackend() {
    openblas_set_num_threads(1);
    omp_set_dynamic(0);
  }

  std::string_view name() const override { return "host"; }

  void copy(const Matrix& into, const Matrix& from, double beta) override {
    host::copy(into, from, beta != 0);
  }
  void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) override {
    const Count k = a.transposed ? a.rows : a.columns;
    with_real(c.slice.dtype, [&]<typename T>(T) {
      host::gemm(a.transposed, b.transposed, c.rows, c.columns, k, at<T>(a.slice), a.stride,
                 at<T>(b.slice), b.stride, static_cast<T>(beta), at<T>(c.slice), c.stride);
    });
  }
  void add_bias(Slice out, Slice base, Slice bias, Count rows) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::add_bias<T>(at<T>(out), at<T>(base), at<T>(bias), rows, bias.count);
    });
  }
  void sum_rows(Slice sum, Slice x, Count rows) override {
    with_real(sum.dtype,
              [&]<typename T>(T) { host::sum_rows<T>(at<T>(sum), at<T>(x), rows, sum.count); });
  }
  void bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                        const Dropout& dropout) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::bias_dropout_add<T>(at<T>(out), at<T>(base), at<T>(x), at<T>(bias), rows, bias.count,
                                dropout);
    });
  }
  void dropout(Slice out, Slice x, Count rows, const Dropout& which) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::dropout<T>(at<T>(out), at<T>(x), rows, x.count / rows, which);
    });
  }

  void unpack(Slice out, Slice packed, const Packing& packing) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::unpack<T>(at<T>(out), packed.data, out.count / packing.group, packing);
    });
  }

  void layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias, Count rows,
                  double epsilon) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::layer_norm<T>(at<T>(out), at<T>(mean), at<T>(rstd), at<T>(x), at<T>(weight),
                          at<T>(bias), rows, weight.count, static_cast<T>(epsilon));
    });
  }
  void layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean, Slice rstd,
                                 Slice weight, Count rows) override {
    with_real(dx.dtype, [&]<typename T>(T) {
      host::layer_norm_backward_input<T>(at<T>(dx), at<T>(base), at<T>(dout), at<T>(x), at<T>(mean),
                                         at<T>(rstd), at<T>(weight), rows, weight.count);
    });
  }
  void layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x, Slice mean,
                                  Slice rstd, Count rows) override {
    with_real(dout.dtype, [&]<typename T>(T) {
      host::layer_norm_backward_weight<T>(at<T>(dweight), at<T>(dbias), at<T>(dout), at<T>(x),
                                          at<T>(mean), at<T>(rstd), rows, dweight.count);
    });
  }

  void scale(Slice x, double factor) override {
    with_real(x.dtype,
              [&]<typename T>(T) { host::scale<T>(at<T>(x), x.count, static_cast<T>(factor)); });
  }
  void gelu(Slice out, Slice x) override {
    with_real(out.dtype, [&]<typename T>(T) { host::gelu<T>(at<T>(out), at<T>(x), x.count); });
  }
  void gelu_backward(Slice dx, Slice dout, Slice x) override {
    with_real(dx.dtype, [&]<typename T>(T) {
      host::gelu_backward<T>(at<T>(dx), at<T>(dout), at<T>(x), x.count);
    });
  }

  void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                 const Dropout& dropout) override {
    host::attention(out, log_sum_exp, qkv, shape, dropout);
  }
  void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                          const AttentionShape& shape, const Dropout& dropout) override {
    host::attention_backward(dqkv, dout, out, log_sum_exp, qkv, shape, dropout);
  }

  void attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                      const Matrix& v, const AttentionPart& part, const Dropout& dropout) override {
    host::attention_part(out, log_sum_exp, q, k, v, part, dropout);
  }
  void merge_attention(Slice out, Slice log_sum_exp, Slice part_out, Slice part_log_sum_exp,
                       const AttentionPart& part) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::merge_attention<T>(at<T>(out), at<T>(log_sum_exp), at<T>(part_out),
                               at<T>(part_log_sum_exp), part);
    });
  }
  void attention_products(Slice products, Slice dout, Slice out,
                          const AttentionPart& part) override {
    host::attention_products(products, dout, out, part);
  }
  void attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv, Slice dout,
                               Slice log_sum_exp, Slice products, const Matrix& q, const Matrix& k,
                               const Matrix& v, const AttentionPart& part,
                               const Dropout& dropout) override {
    host::attention_part_backward(dq, dk, dv, dout, log_sum_exp, products, q, k, v, part, dropout);
  }

  void embedding(Slice out, Slice tokens, std::int32_t first_token,
                 std::span<const std::int32_t> inputs) override {
    const Count rows = std::ssize(inputs), width = out.count / rows;
    host::embedding(out.data, tokens.data, first_token, tokens.count / width, inputs.data(), rows,
                    width * element_bytes(out.dtype));
  }
  void embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                          std::span<const std::int32_t> inputs) override {
    const Count rows = std::ssize(inputs), width = dout.count / rows;
    with_real(dout.dtype, [&]<typename T>(T) {
      host::embedding_backward<T>(at<T>(dtokens), first_token, dtokens.count / width, at<T>(dout),
                                  inputs.data(), rows, width);
    });
  }
  void add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::add_positions<T>(at<T>(out), at<T>(positions), places, rows, out.count / rows);
    });
  }
  void positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                          Count rows) override {
    with_real(dout.dtype, [&]<typename T>(T) {
      host::positions_backward<T>(at<T>(dpositions), at<T>(dout), places, rows, dout.count / rows);
    });
  }

  void gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                   std::span<const double> factors) override {
    const Count rows = std::ssize(tokens);
    with_real(out.dtype, [&]<typename T>(T) {
      host::gather_rows<T>(at<T>(out), at<T>(x), tokens.data(),
                           factors.empty() ? nullptr : factors.data(), rows, out.count / rows);
    });
  }
  void combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                    std::span<const double> factors, Count tokens) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::combine_rows<T>(at<T>(out), at<T>(base), at<T>(x), rows.data(),
                            factors.empty() ? nullptr : factors.data(), tokens,
                            std::ssize(rows) / tokens, out.count / tokens);
    });
  }
  void row_products(Slice products, Slice dout, Slice x, std::span<const std::int32_t> rows,
                    Count tokens) override {
    with_real(dout.dtype, [&]<typename T>(T) {
      host::row_products<T>(at<T>(products), at<T>(dout), at<T>(x), rows.data(), tokens,
                            std::ssize(rows) / tokens, dout.count / tokens);
    });
  }
  double cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                       double scale, double smoothing) override {
    const Count rows = std::ssize(targets);
    double sum = 0;
    with_real(logits.dtype, [&]<typename T>(T) {
      sum = host::cross_entropy<T>(at<T>(logits), targets.data(), rows, logits.count / rows, real,
                                   static_cast<T>(scale), smoothing);
    });
    return sum;
  }
  void softmax_highest(Slice highest, Slice logits, Count real) override {
    const Count rows = highest.count;
    with_real(logits.dtype, [&]<typename T>(T) {
      host::softmax_highest<T>(at<T>(highest), at<T>(logits), rows, logits.count / rows, real);
    });
  }
  void softmax_sums(Slice sums, Slice logits, Slice highest, std::span<const std::int32_t> targets,
                    std::int32_t first_column, Count real) override {
    const Count rows = std::ssize(targets);
    with_real(logits.dtype, [&]<typename T>(T) {
      host::softmax_sums<T>(at<T>(sums), at<T>(logits), at<T>(highest), targets.data(),
                            first_column, rows, logits.count / rows, real, sums.count == 3 * rows);
    });
  }
  double softmax_gradient(Slice logits, Slice sums, std::span<const std::int32_t> targets,
                          std::int32_t first_column, Count real, Count vocabulary, double scale,
                          double smoothing) override {
    const Count rows = std::ssize(targets);
    double sum = 0;
    with_real(logits.dtype, [&]<typename T>(T) {
      sum = host::softmax_gradient<T>(at<T>(logits), at<T>(sums), targets.data(), first_column,
                                      rows, logits.count / rows, real, vocabulary,
                                      static_cast<T>(scale), smoothing);
    });
    return sum;
  }

  void adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
             const AdamWStep& step) override {
    with_real(value.dtype, [&]<typename T>(T) {
      host::adamw<T>(at<T>(value), at<T>(gradient), at<T>(first_moment), at<T>(second_moment),
                     value.count, step);
    });
  }
  void sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) override {
    with_real(value.dtype, [&]<typename T>(T) {
      host::sgd<T>(at<T>(value), at<T>(gradient), at<T>(momentum), value.count, step);
    });
  }
  void nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                double gradient_scale) override {
    with_real(direction.dtype, [&]<typename T>(T) {
      host::nesterov<T>(at<T>(direction), at<T>(gradient), at<T>(momentum), direction.count, keep,
                        gradient_scale);
    });
  }
  void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) override {
    with_real(out.slice.dtype, [&]<typename T>(T) { host::axpby<T>(out, a, x, b, y); });
  }
  void singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                        Slice scratch) override {
    const Count rank = std::max(left.columns, right.rows);
    with_real(of.slice.dtype, [&]<typename T>(T) {
      lockstep::singular_vectors(at<T>(of.slice), of.stride, of.rows, of.columns, rank,
                                 at<T>(left.slice), at<T>(right.slice), at<double>(scratch));
    });
  }
  double squared_norm(Slice x) override {
    double sum = 0;
    with_real(x.dtype, [&]<typename T>(T) { sum = host::squared_norm<T>(at<T>(x), x.count); });
    return sum;
  }
};

}  // namespace

Backend& host_backend() {
  static HostBackend backend;
  return backend;
}

}  // namespace lockstep
