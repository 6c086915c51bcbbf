// Cross entropy: one block per row of logits. A first sweep finds the highest logit and the sum of
// the exponentials together (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018); a second one overwrites the logits with their gradient.
#include <limits>

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

constexpr Count row_threads = 512;

// As on the host: `each` for every token, plus `target` for the target.
template <typename W>
struct Wanted {
  W target, each;

  Wanted(double smoothing, Count vocabulary) {
    const auto v = static_cast<double>(vocabulary);
    const double share = smoothing > 0 ? smoothing * v / (v - 1) : 0;
    target = static_cast<W>(1 - share);
    each = static_cast<W>(share / v);
  }
};

template <typename T>
__device__ __forceinline__ Wide<T> exponential(Wide<T> x) {
  if constexpr (sizeof(T) == 2)
    return __expf(x);
  else
    return exp(x);
}

template <typename W>
__device__ constexpr W lowest() {
  return std::numeric_limits<W>::lowest();
}

// Calls function(column, here, whole) for this thread's groups of a row. Groups in the middle are
// aligned to 16 bytes; those at the ends have fewer elements.
template <typename T, typename Function>
__device__ __forceinline__ void for_row(const T* row, Count columns, Function function) {
  constexpr Count size = Pack<T>::size;
  const Count over =
      static_cast<Count>(reinterpret_cast<std::uintptr_t>(row) % pack_bytes / sizeof(T));
  const Count ahead = min((size - over) % size, columns);
  if (threadIdx.x == 0 && ahead > 0) function(Count{0}, ahead, false);
  for (Count c = ahead + threadIdx.x * size; c < columns; c += blockDim.x * size)
    function(c, columns - c, columns - c >= size);
}

// The highest of the numbers seen so far, and the sum of e^(x - highest).
template <typename W>
struct Running {
  W highest = lowest<W>(), sum = 0;
};

template <typename T>
__device__ __forceinline__ void become_gradient(T* row, Count columns, Count target, Wide<T> high,
                                                Wide<T> normalise, Wide<T> scale,
                                                const Wanted<Wide<T>>& wanted, bool exponentiated) {
  using W = Wide<T>;
  const W each = scale * wanted.each;
  for_row(row, columns, [&](Count c, Count here, bool whole) {
    Pack<T> pack = load(row + c, here, whole);
    for (int i = 0; i < Pack<T>::size; ++i) {
      const W e = exponentiated ? pack.x[i] : exponential<T>(pack.x[i] - high);
      pack.x[i] = e * normalise - each;
      if (c + i == target) pack.x[i] -= scale * wanted.target;
    }
    store(row + c, pack, here, whole);
  });
}

// Of a row without a target.
template <typename T>
__device__ __forceinline__ void become_zero(T* row, Count columns, double& loss) {
  for (Count c = threadIdx.x; c < columns; c += blockDim.x) row[c] = narrow<T>(Wide<T>{0});
  if (threadIdx.x == 0) loss = 0;
}

template <typename T>
__global__ void cross_entropy_kernel(double* losses, T* logits, const std::int32_t* targets,
                                     Count rows, Count columns, Wide<T> scale,
                                     Wanted<Wide<T>> wanted) {
  using W = Wide<T>;
  __shared__ W room[32];
  for (Count r = blockIdx.x; r < rows; r += gridDim.x) {
    T* const row = logits + r * columns;
    if (targets[r] == no_target) {
      become_zero(row, columns, losses[r]);
      continue;
    }
    Running<W> mine;
    W sum_of_logits = 0;
    for_row(row, columns, [&](Count c, Count here, bool whole) {
      const Pack<T> pack = load(row + c, here, whole);
      W highest = mine.highest;
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) highest = max(highest, pack.x[i]);
      mine.sum *= exponential<T>(mine.highest - highest);
      mine.highest = highest;
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) {
          mine.sum += exponential<T>(pack.x[i] - highest);
          sum_of_logits += pack.x[i];
        }
    });
    const W highest = block_max(mine.highest, room);
    const W sum = block_sum(mine.sum * exponential<T>(mine.highest - highest), room);
    W logits_less_highest = 0;
    if (wanted.each > 0)
      logits_less_highest = block_sum(sum_of_logits, room) - highest * static_cast<W>(columns);
    const Count target = targets[r];
    if (threadIdx.x == 0)
      losses[r] = static_cast<double>(log(sum) - wanted.target * (widen(row[target]) - highest) -
                                      wanted.each * logits_less_highest);
    __syncthreads();  // the target's logit has been read
    become_gradient(row, columns, target, highest, scale / sum, scale, wanted, false);
  }
}

template <typename T>
__global__ void highest_kernel(Wide<T>* highest, const T* logits, Count rows, Count columns,
                               Count real) {
  using W = Wide<T>;
  __shared__ W room[32];
  for (Count r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* const row = logits + r * columns;
    W mine = lowest<W>();
    for_row(row, real, [&](Count c, Count here, bool whole) {
      const Pack<T> pack = load(row + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) mine = max(mine, pack.x[i]);
    });
    mine = block_max(mine, room);
    if (threadIdx.x == 0) highest[r] = mine;
  }
}

template <typename T>
__global__ void sums_kernel(Wide<T>* sums, T* logits, const Wide<T>* highest,
                            const std::int32_t* targets, Count rows, Count columns,
                            Count first_column, Count real, bool with_logits) {
  using W = Wide<T>;
  __shared__ W room[32];
  for (Count r = blockIdx.x; r < rows; r += gridDim.x) {
    T* const row = logits + r * columns;
    const W high = highest[r];
    const Count target = targets[r] - first_column;
    if (threadIdx.x == 0)
      sums[rows + r] = 0 <= target && target < real ? widen(row[target]) - high : W{0};
    __syncthreads();  // the target's logit has been read
    W exponentials = 0, plain = 0;
    for_row(row, columns, [&](Count c, Count here, bool whole) {
      Pack<T> pack = load(row + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) {
        const bool is_real = i < here && c + i < real;
        const W less = pack.x[i] - high;
        pack.x[i] = is_real ? exponential<T>(less) : W{0};
        exponentials += pack.x[i];
        if (is_real) plain += less;
      }
      store(row + c, pack, here, whole);
    });
    exponentials = block_sum(exponentials, room);
    if (with_logits) plain = block_sum(plain, room);
    if (threadIdx.x == 0) {
      sums[r] = exponentials;
      if (with_logits) sums[2 * rows + r] = plain;
    }
  }
}

template <typename T>
__global__ void gradient_kernel(double* losses, T* logits, const Wide<T>* sums,
                                const std::int32_t* targets, Count rows, Count columns,
                                Count first_column, Count real, Wide<T> scale,
                                Wanted<Wide<T>> wanted) {
  using W = Wide<T>;
  for (Count r = blockIdx.x; r < rows; r += gridDim.x) {
    if (targets[r] == no_target) {
      become_zero(logits + r * columns, real, losses[r]);
      continue;
    }
    if (threadIdx.x == 0) {
      const W plain = wanted.each > 0 ? sums[2 * rows + r] : W{0};
      losses[r] =
          static_cast<double>(log(sums[r]) - wanted.target * sums[rows + r] - wanted.each * plain);
    }
    become_gradient(logits + r * columns, real, targets[r] - first_column, W{0}, scale / sums[r],
                    scale, wanted, true);
  }
}

}  // namespace

void cross_entropy(cudaStream_t stream, double* losses, Slice logits, const std::int32_t* targets,
                   Count rows, double scale, double smoothing) {
  const Count columns = logits.count / rows;
  with_type(logits.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(cross_entropy_kernel<T>, block_per_row(rows, row_threads), stream, losses, at<T>(logits),
           targets, rows, columns, static_cast<W>(scale), Wanted<W>(smoothing, columns));
  });
}

void softmax_highest(cudaStream_t stream, Slice highest, Slice logits, Count real) {
  const Count rows = highest.count;
  with_type(logits.dtype, [&]<typename T>(T*) {
    launch(highest_kernel<T>, block_per_row(rows, row_threads), stream, at<Wide<T>>(highest),
           at<T>(logits), rows, logits.count / rows, real);
  });
}

void softmax_sums(cudaStream_t stream, Slice sums, Slice logits, Slice highest,
                  const std::int32_t* targets, Count rows, Count first_column, Count real) {
  with_type(logits.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(sums_kernel<T>, block_per_row(rows, row_threads), stream, at<W>(sums), at<T>(logits),
           at<W>(highest), targets, rows, logits.count / rows, first_column, real,
           sums.count == 3 * rows);
  });
}

void softmax_gradient(cudaStream_t stream, double* losses, Slice logits, Slice sums,
                      const std::int32_t* targets, Count rows, Count first_column, Count real,
                      Count vocabulary, double scale, double smoothing) {
  with_type(logits.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(gradient_kernel<T>, block_per_row(rows, row_threads), stream, losses, at<T>(logits),
           at<W>(sums), targets, rows, logits.count / rows, first_column, real,
           static_cast<W>(scale), Wanted<W>(smoothing, vocabulary));
  });
}

}  // namespace lockstep::cuda
