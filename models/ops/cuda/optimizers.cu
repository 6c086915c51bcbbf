// Steps of optimizers: elementwise kernels, 16 bytes at a time.
#include <algorithm>
#include <cmath>

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

// The constants of a step, in the type of its arithmetic.
template <typename W>
struct StepNumbers {
  W scale, beta1, beta2, step_size, second_correction, eps, keep;

  explicit StepNumbers(const AdamWStep& s) {
    const auto n = static_cast<double>(s.step);
    scale = static_cast<W>(s.gradient_scale);
    beta1 = static_cast<W>(s.beta1);
    beta2 = static_cast<W>(s.beta2);
    step_size = static_cast<W>(s.learning_rate / (1 - std::pow(s.beta1, n)));
    second_correction = static_cast<W>(1 / std::sqrt(1 - std::pow(s.beta2, n)));
    eps = static_cast<W>(s.eps);
    keep = static_cast<W>(1 - s.learning_rate * s.weight_decay);
  }
};

// As many elements of 8 or 16 bytes together as a pack of their wider type has; 0 past the end.
template <typename T, int size>
struct Group {
  alignas(pack_bytes) T x[size] = {};

  __device__ __forceinline__ Group(const T* from, Count here, bool all) {
    struct alignas(sizeof(x)) Whole {
      T values[size];
    };
    if (all)
      *reinterpret_cast<Whole*>(x) = *reinterpret_cast<const Whole*>(from);
    else
      for (int k = 0; k < size; ++k)
        if (k < here) x[k] = from[k];
  }
};

// Packs of 16 bytes of type W, with the same number of gradients of type G: 8 or 16 bytes.
template <typename W, typename G>
__global__ void adamw_kernel(W* value, const G* gradient, W* first, W* second, Count count,
                             StepNumbers<W> s, bool whole) {
  constexpr int size = Pack<W>::size;
  for_groups<size>(count, whole, [&](Count i, Count here, bool all) {
    Pack<W> v = load(value + i, here, all), m1 = load(first + i, here, all),
            m2 = load(second + i, here, all);
    const Group<G, size> raw(gradient + i, here, all);
    for (int k = 0; k < size; ++k) {
      const W g = widen(raw.x[k]) * s.scale;
      const W m = s.beta1 * m1.x[k] + (W{1} - s.beta1) * g;
      const W n = s.beta2 * m2.x[k] + (W{1} - s.beta2) * g * g;
      m1.x[k] = m;
      m2.x[k] = n;
      v.x[k] = v.x[k] * s.keep - s.step_size * m / (sqrt(n) * s.second_correction + s.eps);
    }
    store(first + i, m1, here, all);
    store(second + i, m2, here, all);
    store(value + i, v, here, all);
  });
}

// `momentum` may be null.
template <typename W, typename G>
__global__ void sgd_kernel(W* value, const G* gradient, W* momentum, Count count, W rate, W keep,
                           W decay, W scale, bool whole) {
  constexpr int size = Pack<W>::size;
  for_groups<size>(count, whole, [&](Count i, Count here, bool all) {
    Pack<W> v = load(value + i, here, all), m = {};
    const Group<G, size> raw(gradient + i, here, all);
    if (momentum) m = load(momentum + i, here, all);
    for (int k = 0; k < size; ++k) {
      m.x[k] = keep * m.x[k] + widen(raw.x[k]) * scale + decay * v.x[k];
      v.x[k] -= rate * m.x[k];
    }
    if (momentum) store(momentum + i, m, here, all);
    store(value + i, v, here, all);
  });
}

template <typename W, typename G>
__global__ void nesterov_kernel(W* direction, const G* gradient, W* momentum, Count count, W keep,
                                W added, bool whole) {
  constexpr int size = Pack<W>::size;
  for_groups<size>(count, whole, [&](Count i, Count here, bool all) {
    Pack<W> m = {}, d = {};
    if (momentum) m = load(momentum + i, here, all);
    const Group<G, size> raw(gradient + i, here, all);
    for (int k = 0; k < size; ++k) {
      const W part = added * widen(raw.x[k]);
      m.x[k] = keep * m.x[k] + part;
      d.x[k] = keep * m.x[k] + part;
    }
    if (momentum) store(momentum + i, m, here, all);
    store(direction + i, d, here, all);
  });
}

// Rows of a matrix, `stride` elements apart.
template <typename T>
struct StridedRows {
  T* data;
  Count stride;
};

// `y.data` may be null.
template <typename W>
__global__ void axpby_kernel(StridedRows<W> out, W a, StridedRows<const W> x, W b,
                             StridedRows<const W> y, Count rows, Count columns) {
  for_groups<1>(rows * columns, true, [&](Count i, Count, bool) {
    const Count row = i / columns, column = i % columns;
    W sum = a * x.data[row * x.stride + column];
    if (y.data) sum += b * y.data[row * y.stride + column];
    out.data[row * out.stride + column] = sum;
  });
}

// Throws Error (bad_input) unless values of an optimizer have the type that gradients need.
void check_types(Slice values, Slice gradients) {
  require((values.dtype == DType::f64) == (gradients.dtype == DType::f64) &&
              (values.dtype == DType::f64 || values.dtype == DType::f32),
          "an optimizer on a device: values of " + std::string(name_of(values.dtype)) +
              " with gradients of " + std::string(name_of(gradients.dtype)),
          "keep values and states in f64 for gradients of f64, else in f32");
}

// Whether packs of W can be loaded with as many gradients of type G.
template <typename W, typename G>
bool in_packs_with(std::initializer_list<const W*> packs, const void* gradients) {
  // 16-bit gradients take half a pack.
  return cuda::in_packs<W>(0, packs) &&
         reinterpret_cast<std::uintptr_t>(gradients) % (sizeof(G) * pack_size<W>) == 0;
}

}  // namespace

void adamw(cudaStream_t stream, Slice value, Slice gradient, Slice first_moment,
           Slice second_moment, const AdamWStep& step) {
  check_types(value, gradient);
  with_type(gradient.dtype, [&]<typename G>(G*) {
    using W = Wide<G>;
    const bool whole = in_packs_with<W, G>(
        {at<W>(value), at<W>(first_moment), at<W>(second_moment)}, gradient.data);
    launch(adamw_kernel<W, G>, over_elements(value.count, pack_size<W>), stream, at<W>(value),
           at<G>(gradient), at<W>(first_moment), at<W>(second_moment), value.count,
           StepNumbers<W>(step), whole);
  });
}

void sgd(cudaStream_t stream, Slice value, Slice gradient, Slice momentum, const SgdStep& step) {
  check_types(value, gradient);
  with_type(gradient.dtype, [&]<typename G>(G*) {
    using W = Wide<G>;
    launch(sgd_kernel<W, G>, over_elements(value.count, pack_size<W>), stream, at<W>(value),
           at<G>(gradient), at<W>(momentum), value.count, static_cast<W>(step.learning_rate),
           static_cast<W>(step.momentum), static_cast<W>(step.weight_decay),
           static_cast<W>(step.gradient_scale),
           in_packs_with<W, G>({at<W>(value), at<W>(momentum)}, gradient.data));
  });
}

void nesterov(cudaStream_t stream, Slice direction, Slice gradient, Slice momentum, double keep,
              double gradient_scale) {
  check_types(direction, gradient);
  with_type(gradient.dtype, [&]<typename G>(G*) {
    using W = Wide<G>;
    launch(nesterov_kernel<W, G>, over_elements(direction.count, pack_size<W>), stream,
           at<W>(direction), at<G>(gradient), at<W>(momentum), direction.count,
           static_cast<W>(keep), static_cast<W>((1 - keep) * gradient_scale),
           in_packs_with<W, G>({at<W>(direction), at<W>(momentum)}, gradient.data));
  });
}

void axpby(cudaStream_t stream, const Matrix& out, double a, const Matrix& x, double b,
           const Matrix& y) {
  with_type(out.slice.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(axpby_kernel<W>, over_elements(out.rows * out.columns, 1), stream,
           StridedRows<W>{at<W>(out.slice), out.stride}, static_cast<W>(a),
           StridedRows<const W>{at<W>(x.slice), x.stride}, static_cast<W>(b),
           StridedRows<const W>{at<W>(y.slice), y.stride}, out.rows, out.columns);
  });
}

}  // namespace lockstep::cuda
