// GELU, optimizers, norms and conversions: elementwise kernels, 16 bytes at a time.
#include <algorithm>
#include <cmath>

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

// Calls function(first, here, whole) for this thread's groups of `size` elements.
template <int size, typename Function>
__device__ __forceinline__ void for_groups(Count count, bool in_packs, Function function) {
  const Count stride = static_cast<Count>(gridDim.x) * blockDim.x * size;
  for (Count i = (static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x) * size; i < count;
       i += stride)
    function(i, count - i, in_packs && count - i >= size);
}

// tanh(u) = 1 - 2 / (exp(2u) + 1). Results rounded to 16 bits may use the fast exponential.
template <typename T>
__device__ __forceinline__ Wide<T> tanh_from_exp(Wide<T> u) {
  if constexpr (sizeof(T) == 2)
    return 1.0F - __fdividef(2.0F, __expf(fminf(2.0F * u, 80.0F)) + 1.0F);
  else
    return Wide<T>{1} - Wide<T>{2} / (exp(Wide<T>{2} * u) + Wide<T>{1});
}

constexpr double cubic = 0.044715, root_2_over_pi = 0.79788456080286535588;

template <typename T>
__global__ void gelu_kernel(T* out, const T* x, Count count, bool whole) {
  using W = Wide<T>;
  const W a = static_cast<W>(root_2_over_pi), b = static_cast<W>(cubic);
  for_groups<Pack<T>::size>(count, whole, [&](Count i, Count here, bool all) {
    Pack<T> pack = load(x + i, here, all);
    for (int k = 0; k < Pack<T>::size; ++k) {
      const W v = pack.x[k];
      pack.x[k] = W{0.5} * v * (W{1} + tanh_from_exp<T>(a * (v + b * v * v * v)));
    }
    store(out + i, pack, here, all);
  });
}

template <typename T>
__global__ void gelu_backward_kernel(T* dx, const T* dout, const T* x, Count count, bool whole) {
  using W = Wide<T>;
  const W a = static_cast<W>(root_2_over_pi), b = static_cast<W>(cubic);
  for_groups<Pack<T>::size>(count, whole, [&](Count i, Count here, bool all) {
    const Pack<T> values = load(x + i, here, all);
    Pack<T> d = load(dout + i, here, all);
    for (int k = 0; k < Pack<T>::size; ++k) {
      const W v = values.x[k], t = tanh_from_exp<T>(a * (v + b * v * v * v));
      const W inner = a * (W{1} + W{3} * b * v * v);
      d.x[k] *= W{0.5} * (W{1} + t + v * (W{1} - t * t) * inner);
    }
    store(dx + i, d, here, all);
  });
}

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
    Pack<W> m = load(momentum + i, here, all), d = {};
    const Group<G, size> raw(gradient + i, here, all);
    for (int k = 0; k < size; ++k) {
      const W part = added * widen(raw.x[k]);
      m.x[k] = keep * m.x[k] + part;
      d.x[k] = keep * m.x[k] + part;
    }
    store(momentum + i, m, here, all);
    store(direction + i, d, here, all);
  });
}

// Rows of a matrix, `stride` elements apart.
template <typename T>
struct Strided {
  T* data;
  Count stride;
};

// `y.data` may be null.
template <typename W>
__global__ void axpby_kernel(Strided<W> out, W a, Strided<const W> x, W b, Strided<const W> y,
                             Count rows, Count columns) {
  for_groups<1>(rows * columns, true, [&](Count i, Count, bool) {
    const Count row = i / columns, column = i % columns;
    W sum = a * x.data[row * x.stride + column];
    if (y.data) sum += b * y.data[row * y.stride + column];
    out.data[row * out.stride + column] = sum;
  });
}

template <typename Into, typename From>
__global__ void convert_kernel(Into* into, const From* from, Count count, bool whole) {
  // As many elements as fit into 16 bytes in the wider type.
  constexpr int size = std::min(Pack<Into>::size, Pack<From>::size);
  for_groups<size>(count, whole, [&](Count i, Count here, bool all) {
    alignas(pack_bytes) From raw[size] = {};
    alignas(pack_bytes) Into narrowed[size] = {};
    struct alignas(sizeof(raw)) WholeFrom {
      From values[size];
    };
    struct alignas(sizeof(narrowed)) WholeInto {
      Into values[size];
    };
    if (all) *reinterpret_cast<WholeFrom*>(raw) = *reinterpret_cast<const WholeFrom*>(from + i);
    for (int k = 0; k < size; ++k) {
      if (!all && k < here) raw[k] = from[i + k];
      if (all || k < here) narrowed[k] = narrow<Into>(static_cast<Wide<Into>>(widen(raw[k])));
      if (!all && k < here) into[i + k] = narrowed[k];
    }
    if (all) *reinterpret_cast<WholeInto*>(into + i) = *reinterpret_cast<WholeInto*>(narrowed);
  });
}

// parts[block] = its sum of squares. The number of blocks depends only on the number of elements.
template <typename T>
__global__ void squares_kernel(double* parts, const T* x, Count count, bool whole) {
  __shared__ double room[32];
  double sum = 0;
  for_groups<Pack<T>::size>(count, whole, [&](Count i, Count here, bool all) {
    const Pack<T> pack = load(x + i, here, all);
    // A pack's squares in the wide type, the rest in f64: f64 is slow, f32 is not.
    Wide<T> squares = 0;
    for (int k = 0; k < Pack<T>::size; ++k) squares += pack.x[k] * pack.x[k];
    sum += static_cast<double>(squares);
  });
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block: each thread sums elements at a fixed stride, then the threads' sums are added.
__global__ void sum_doubles_kernel(double* sum, const double* values, Count count) {
  __shared__ double room[32];
  double mine = 0;
  for (Count i = threadIdx.x; i < count; i += blockDim.x) mine += values[i];
  mine = block_sum(mine, room);
  if (threadIdx.x == 0) *sum = mine;
}

}  // namespace

void gelu(cudaStream_t stream, Slice out, Slice x) {
  with_type(x.dtype, [&]<typename T>(T*) {
    launch(gelu_kernel<T>, over_elements(x.count, pack_size<T>), stream, at<T>(out), at<T>(x),
           x.count, in_packs<T>(0, {at<T>(out), at<T>(x)}));
  });
}

void gelu_backward(cudaStream_t stream, Slice dx, Slice dout, Slice x) {
  with_type(x.dtype, [&]<typename T>(T*) {
    launch(gelu_backward_kernel<T>, over_elements(x.count, pack_size<T>), stream, at<T>(dx),
           at<T>(dout), at<T>(x), x.count, in_packs<T>(0, {at<T>(dx), at<T>(dout), at<T>(x)}));
  });
}

namespace {

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
           Strided<W>{at<W>(out.slice), out.stride}, static_cast<W>(a),
           Strided<const W>{at<W>(x.slice), x.stride}, static_cast<W>(b),
           Strided<const W>{at<W>(y.slice), y.stride}, out.rows, out.columns);
  });
}

void convert(cudaStream_t stream, Slice into, Slice from) {
  with_type(into.dtype, [&]<typename Into>(Into*) {
    with_type(from.dtype, [&]<typename From>(From*) {
      const bool whole = in_packs<Into>(0, {at<Into>(into)}) && in_packs<From>(0, {at<From>(from)});
      launch(convert_kernel<Into, From>,
             over_elements(into.count, std::min(pack_size<Into>, pack_size<From>)), stream,
             at<Into>(into), at<From>(from), into.count, whole);
    });
  });
}

void squared_norm(cudaStream_t stream, double* sum, Slice x, double* parts) {
  with_type(x.dtype, [&]<typename T>(T*) {
    Geometry geometry = over_elements(x.count, pack_size<T>);
    geometry.grid.x = std::min(geometry.grid.x, squared_norm_parts);
    launch(squares_kernel<T>, geometry, stream, parts, at<T>(x), x.count,
           in_packs<T>(0, {at<T>(x)}));
    sum_doubles(stream, sum, parts, geometry.grid.x);
  });
}

void sum_doubles(cudaStream_t stream, double* sum, const double* values, Count count) {
  launch(sum_doubles_kernel, {.grid = {1}, .block = {1024}}, stream, sum, values, count);
}

}  // namespace lockstep::cuda
