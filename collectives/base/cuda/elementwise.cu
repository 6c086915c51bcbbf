// Combines, divides and converts elements: 16 bytes at a time where addresses are aligned, single
// elements before and after.
#include "collectives/base/cuda/elementwise.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/number.cuh"
#include "collectives/base/cuda/vectors.h"
#include "collectives/base/error.h"
#include "collectives/base/with_type.h"

namespace lockstep::cuda {
namespace {

constexpr int vector_bytes = 16;

// Calls work.template at<lanes>(index of the first element) for all elements of a cut: first the
// vectors, then the elements before and after them.
template <int lanes, typename Work>
__device__ void for_elements(const VectorCut& cut, const Work& work) {
  const Count stride = Count{gridDim.x} * blockDim.x;
  const Count first = Count{blockIdx.x} * blockDim.x + threadIdx.x;
  for (Count v = first; v < cut.vectors; v += stride) work.template at<lanes>(cut.head + v * lanes);
  for (Count i = first; i < cut.head + cut.tail; i += stride)
    work.template at<1>(i < cut.head ? i : i + cut.vectors * lanes);
}

template <int lanes, typename T>
__device__ Lanes<T, lanes> load(const T* from, Count index) {
  return *reinterpret_cast<const Lanes<T, lanes>*>(from + index);
}

template <int lanes, typename T>
__device__ void store(T* into, Count index, const Lanes<T, lanes>& values) {
  *reinterpret_cast<Lanes<T, lanes>*>(into + index) = values;
}

// Integers wrap around: sums and products use unsigned arithmetic.
struct Sum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return static_cast<W>(a + b);
  }
};
struct Product {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    // Unsigned types of 32 bits or more. u8 is promoted to int, which gives the same result.
    return static_cast<W>(a * b);
  }
};
// Keeps a NaN of either operand.
struct Minimum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return b < a || b != b ? b : a;
  }
};
struct Maximum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return a < b || b != b ? b : a;
  }
};

template <typename T>
struct Operands {
  const T* from[most_operands];
  T* into[most_operands];
  int froms = 0, intos = 0;
};

template <typename T, typename Op>
struct Combine {
  const Operands<T>& operands;

  template <int lanes>
  __device__ void at(Count index) const {
    using N = Number<T>;
    Lanes<T, lanes> result = load<lanes>(operands.from[0], index);
#pragma unroll 4
    for (int k = 1; k < operands.froms; ++k) {
      const Lanes<T, lanes> other = load<lanes>(operands.from[k], index);
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        result.of[i] = N::narrow(Op()(N::widen(result.of[i]), N::widen(other.of[i])));
    }
    for (int k = 0; k < operands.intos; ++k) store<lanes>(operands.into[k], index, result);
  }
};

template <typename T, typename Op>
__global__ void combine_kernel(const Operands<T> operands, const VectorCut cut) {
  for_elements<vector_bytes / sizeof(T)>(cut, Combine<T, Op>{operands});
}

template <typename T>
struct Divide {
  T* data;
  typename Number<T>::Wide divisor;

  template <int lanes>
  __device__ void at(Count index) const {
    using N = Number<T>;
    Lanes<T, lanes> values = load<lanes>(data, index);
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      values.of[i] = N::narrow(static_cast<typename N::Wide>(N::widen(values.of[i]) / divisor));
    store<lanes>(data, index, values);
  }
};

template <typename T>
__global__ void divide_kernel(const Divide<T> divide, const VectorCut cut) {
  for_elements<vector_bytes / sizeof(T)>(cut, divide);
}

template <typename Into, typename From>
struct Convert {
  static constexpr int widest =
      vector_bytes / (sizeof(Into) > sizeof(From) ? sizeof(Into) : sizeof(From));
  Into* into;
  const From* from;

  template <int lanes>
  __device__ void at(Count index) const {
    const Lanes<From, lanes> values = load<lanes>(from, index);
    Lanes<Into, lanes> converted;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      converted.of[i] = Number<Into>::narrow(
          static_cast<typename Number<Into>::Wide>(Number<From>::widen(values.of[i])));
    store<lanes>(into, index, converted);
  }
};

template <typename Into, typename From>
__global__ void convert_kernel(const Convert<Into, From> convert, const VectorCut cut) {
  for_elements<Convert<Into, From>::widest>(cut, convert);
}

// The start of a slice, counted in elements.
std::uintptr_t place(const Slice& slice) {
  return reinterpret_cast<std::uintptr_t>(slice.data) / element_bytes(slice.dtype);
}

Geometry geometry(const VectorCut& cut) {
  return over_elements(std::max(cut.vectors, cut.head + cut.tail));
}

template <typename Function>
void with_floating(DType dtype, Function function) {
  with_type(dtype, [&]<typename T>(T value) {
    if constexpr (std::is_integral_v<T>)
      require(false, "integers cannot be converted on any device");
    else
      function(value);
  });
}

// Maps signed to unsigned integers: the result has the same bits.
template <typename Function>
void with_unsigned(DType dtype, Function function) {
  with_type(dtype, [&]<typename T>(T value) {
    if constexpr (std::is_integral_v<T>)
      function(std::make_unsigned_t<T>(value));
    else
      function(value);
  });
}

template <typename T>
T* at(const Slice& slice) {
  return reinterpret_cast<T*>(slice.data);
}

template <typename Op, typename T>
void launch_combine(std::span<const Slice> into, std::span<const Slice> from, cudaStream_t stream) {
  Operands<T> operands{};
  std::vector<std::uintptr_t> places;
  for (const Slice& slice : from) {
    operands.from[operands.froms++] = at<const T>(slice);
    places.push_back(place(slice));
  }
  for (const Slice& slice : into) {
    operands.into[operands.intos++] = at<T>(slice);
    places.push_back(place(slice));
  }
  const VectorCut cut = vector_cut(from[0].count, vector_bytes / sizeof(T), places);
  launch(combine_kernel<T, Op>, geometry(cut), stream, operands, cut);
}

}  // namespace

void enqueue_combine(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                     cudaStream_t stream) {
  const DType dtype = from[0].dtype;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return with_unsigned(dtype,
                           [&]<typename T>(T) { launch_combine<Sum, T>(into, from, stream); });
    case ReduceOp::prod:
      return with_unsigned(dtype,
                           [&]<typename T>(T) { launch_combine<Product, T>(into, from, stream); });
    case ReduceOp::min:
      return with_type(dtype,
                       [&]<typename T>(T) { launch_combine<Minimum, T>(into, from, stream); });
    case ReduceOp::max:
      return with_type(dtype,
                       [&]<typename T>(T) { launch_combine<Maximum, T>(into, from, stream); });
  }
}

void enqueue_divide(Slice data, Count divisor, cudaStream_t stream) {
  with_type(data.dtype, [&]<typename T>(T) {
    const std::uintptr_t places[] = {place(data)};
    const VectorCut cut = vector_cut(data.count, vector_bytes / sizeof(T), places);
    launch(divide_kernel<T>, geometry(cut), stream,
           Divide<T>{at<T>(data), static_cast<typename Number<T>::Wide>(divisor)}, cut);
  });
}

void enqueue_convert(Slice into, Slice from, cudaStream_t stream) {
  with_floating(from.dtype, [&]<typename From>(From) {
    with_floating(into.dtype, [&]<typename Into>(Into) {
      if constexpr (!std::is_same_v<Into, From>) {
        const std::uintptr_t places[] = {place(into), place(from)};
        const VectorCut cut = vector_cut(into.count, Convert<Into, From>::widest, places);
        launch(convert_kernel<Into, From>, geometry(cut), stream,
               Convert<Into, From>{at<Into>(into), at<const From>(from)}, cut);
      }
    });
  });
}

}  // namespace lockstep::cuda
