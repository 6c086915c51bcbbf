// GELU, AdamW and norms: elementwise kernels.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

constexpr double cubic = 0.044715;
const double root_2_over_pi = std::sqrt(2 * std::numbers::inv_pi);
// tanh(u) = 1 - 2 / (exp(2u) + 1): one exponential, which vectorises; cancellation does not matter
// in 1 + tanh.
// after 1 + tanh.
template <typename T>
T tanh_from_exp(T u) {
  return T{1} - T{2} / (exponential(T{2} * u) + T{1});
}

}  // namespace

// Hendrycks and Gimpel, "Gaussian error linear units", 2016, in the tanh form of GPT-2.
template <typename T>
void gelu(T* out, const T* x, Count count) {
  const T a = static_cast<T>(root_2_over_pi), b = static_cast<T>(cubic);
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) {
    const T v = x[i];
    out[i] = T{0.5} * v * (T{1} + tanh_from_exp(a * (v + b * v * v * v)));
  }
}

template <typename T>
void gelu_backward(T* dx, const T* dout, const T* x, Count count) {
  const T a = static_cast<T>(root_2_over_pi), b = static_cast<T>(cubic);
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) {
    const T v = x[i];
    const T t = tanh_from_exp(a * (v + b * v * v * v));
    const T inner = a * (T{1} + T{3} * b * v * v);
    dx[i] = dout[i] * T{0.5} * (T{1} + t + v * (T{1} - t * t) * inner);
  }
}

template <typename T>
void scale(T* x, Count count, T factor) {
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) x[i] *= factor;
}

template <typename T>
void adamw(T* value, const T* gradient, T* first, T* second, Count count, const AdamWStep& s) {
  const T scale = static_cast<T>(s.gradient_scale), beta1 = static_cast<T>(s.beta1),
          beta2 = static_cast<T>(s.beta2);
  const auto n = static_cast<double>(s.step);
  const T step_size = static_cast<T>(s.learning_rate / (1 - std::pow(s.beta1, n)));
  const T second_correction = static_cast<T>(1 / std::sqrt(1 - std::pow(s.beta2, n)));
  const T eps = static_cast<T>(s.eps), keep = static_cast<T>(1 - s.learning_rate * s.weight_decay);
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) {
    const T g = gradient[i] * scale;
    const T m = beta1 * first[i] + (T{1} - beta1) * g;
    const T v = beta2 * second[i] + (T{1} - beta2) * g * g;
    first[i] = m;
    second[i] = v;
    value[i] = value[i] * keep - step_size * m / (std::sqrt(v) * second_correction + eps);
  }
}

template <typename T>
void sgd(T* value, const T* gradient, T* momentum, Count count, const SgdStep& s) {
  const T scale = static_cast<T>(s.gradient_scale), decay = static_cast<T>(s.weight_decay),
          rate = static_cast<T>(s.learning_rate), keep = static_cast<T>(s.momentum);
  if (momentum) {
#pragma omp parallel for simd schedule(static)
    for (Count i = 0; i < count; ++i) {
      momentum[i] = keep * momentum[i] + gradient[i] * scale + decay * value[i];
      value[i] -= rate * momentum[i];
    }
    return;
  }
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) value[i] -= rate * (gradient[i] * scale + decay * value[i]);
}

template <typename T>
void nesterov(T* direction, const T* gradient, T* momentum, Count count, double keep,
              double scale) {
  const T kept = static_cast<T>(keep), added = static_cast<T>((1 - keep) * scale);
  if (!momentum) {
#pragma omp parallel for simd schedule(static)
    for (Count i = 0; i < count; ++i) direction[i] = added * gradient[i];
    return;
  }
#pragma omp parallel for simd schedule(static)
  for (Count i = 0; i < count; ++i) {
    const T part = added * gradient[i];
    momentum[i] = kept * momentum[i] + part;
    direction[i] = kept * momentum[i] + part;
  }
}

template <typename T>
void axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) {
  const bool has_y = y.slice.count > 0;
  const bool is_dense =
      out.stride == out.columns && x.stride == x.columns && (!has_y || y.stride == y.columns);
  const Count rows = is_dense ? 1 : out.rows,
              columns = is_dense ? out.rows * out.columns : out.columns;
  const T of_x = static_cast<T>(a), of_y = static_cast<T>(b);
  // Few long rows or many short ones: both are cut into the same blocks.
  constexpr Count block = 16384;
  const Count blocks = (columns + block - 1) / block;
#pragma omp parallel for collapse(2) schedule(static)
  for (Count row = 0; row < rows; ++row)
    for (Count part = 0; part < blocks; ++part) {
      const Count first = part * block, end = std::min(columns, first + block);
      T* const o = reinterpret_cast<T*>(out.slice.data) + row * out.stride;
      const T* const from_x = reinterpret_cast<const T*>(x.slice.data) + row * x.stride;
      const T* const from_y =
          has_y ? reinterpret_cast<const T*>(y.slice.data) + row * y.stride : nullptr;
      if (has_y) {
#pragma omp simd
        for (Count i = first; i < end; ++i) o[i] = of_x * from_x[i] + of_y * from_y[i];
      } else {
#pragma omp simd
        for (Count i = first; i < end; ++i) o[i] = of_x * from_x[i];
      }
    }
}

template <typename T>
double squared_norm(const T* x, Count count) {
  constexpr Count part = 16384;
  const Count parts = (count + part - 1) / part;
  std::vector<double> sums(static_cast<std::size_t>(parts));
#pragma omp parallel for schedule(static)
  for (Count p = 0; p < parts; ++p) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count i = p * part; i < std::min(count, (p + 1) * part); ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums[p] = sum;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template void gelu(float*, const float*, Count);
template void gelu(double*, const double*, Count);
template void gelu_backward(float*, const float*, const float*, Count);
template void gelu_backward(double*, const double*, const double*, Count);
template void scale(float*, Count, float);
template void scale(double*, Count, double);
template void adamw(float*, const float*, float*, float*, Count, const AdamWStep&);
template void adamw(double*, const double*, double*, double*, Count, const AdamWStep&);
template void sgd(float*, const float*, float*, Count, const SgdStep&);
template void sgd(double*, const double*, double*, Count, const SgdStep&);
template void nesterov(float*, const float*, float*, Count, double, double);
template void nesterov(double*, const double*, double*, Count, double, double);
template void axpby<float>(const Matrix&, double, const Matrix&, double, const Matrix&);
template void axpby<double>(const Matrix&, double, const Matrix&, double, const Matrix&);
template double squared_norm(const float*, Count);
template double squared_norm(const double*, Count);

}  // namespace lockstep::host
