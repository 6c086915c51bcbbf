// The host's backend: turns slices into typed pointers and calls the kernels. The one place of
// models/ that looks at types.
#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include "collectives/base/error.h"
#include "models/ops/kernels.h"

namespace lockstep {
namespace {

// Calls function(T{}) for the type the kernels are made for.
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
  // Ranks and OpenMP share out the cores; a BLAS with threads of its own would multiply them.
  HostBackend() {
    openblas_set_num_threads(1);
    omp_set_dynamic(0);
  }

  std::string_view name() const override { return "host"; }

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

  void gelu(Slice out, Slice x) override {
    with_real(out.dtype, [&]<typename T>(T) { host::gelu<T>(at<T>(out), at<T>(x), x.count); });
  }
  void gelu_backward(Slice dx, Slice dout, Slice x) override {
    with_real(dx.dtype, [&]<typename T>(T) {
      host::gelu_backward<T>(at<T>(dx), at<T>(dout), at<T>(x), x.count);
    });
  }

  void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape) override {
    with_real(out.dtype, [&]<typename T>(T) {
      host::attention<T>(at<T>(out), at<T>(log_sum_exp), at<T>(qkv), shape);
    });
  }
  void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                          const AttentionShape& shape) override {
    with_real(dqkv.dtype, [&]<typename T>(T) {
      host::attention_backward<T>(at<T>(dqkv), at<T>(dout), at<T>(out), at<T>(log_sum_exp),
                                  at<T>(qkv), shape);
    });
  }

  void embedding(Slice out, Slice tokens, Slice positions, std::span<const std::int32_t> inputs,
                 Count length) override {
    const Count rows = std::ssize(inputs);
    with_real(out.dtype, [&]<typename T>(T) {
      host::embedding<T>(at<T>(out), at<T>(tokens), at<T>(positions), inputs.data(), rows, length,
                         out.count / rows);
    });
  }
  void embedding_backward(Slice dtokens, Slice dpositions, Slice dout,
                          std::span<const std::int32_t> inputs, Count length) override {
    const Count rows = std::ssize(inputs);
    with_real(dout.dtype, [&]<typename T>(T) {
      host::embedding_backward<T>(at<T>(dtokens), at<T>(dpositions), at<T>(dout), inputs.data(),
                                  rows, length, dout.count / rows);
    });
  }

  double cross_entropy(Slice logits, std::span<const std::int32_t> targets, double scale) override {
    const Count rows = std::ssize(targets);
    double sum = 0;
    with_real(logits.dtype, [&]<typename T>(T) {
      sum = host::cross_entropy<T>(at<T>(logits), targets.data(), rows, logits.count / rows,
                                   static_cast<T>(scale));
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
