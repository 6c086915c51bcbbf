// GELU, norms and conversions: elementwise kernels, 16 bytes at a time.
#include <algorithm>
#include <cmath>

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

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
__global__ void scale_kernel(T* x, Wide<T> factor, Count count, bool whole) {
  for_groups<Pack<T>::size>(count, whole, [&](Count i, Count here, bool all) {
    Pack<T> pack = load(x + i, here, all);
    for (int k = 0; k < Pack<T>::size; ++k) pack.x[k] *= factor;
    store(x + i, pack, here, all);
  });
}

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

void scale(cudaStream_t stream, Slice x, double factor) {
  with_type(x.dtype, [&]<typename T>(T*) {
    launch(scale_kernel<T>, over_elements(x.count, pack_size<T>), stream, at<T>(x),
           static_cast<Wide<T>>(factor), x.count, in_packs<T>(0, {at<T>(x)}));
  });
}

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
