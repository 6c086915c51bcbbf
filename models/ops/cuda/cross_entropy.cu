// Cross entropy: one block per row of logits. A first sweep finds the highest logit and the sum of
// the exponentials together (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018), and keeps the row in shared memory if it fits; a second one overwrites the logits with their
// gradient.
#include <limits>

#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"
#include "models/ops/cuda/ptx.cuh"

namespace lockstep::cuda {
namespace {

constexpr Count row_threads = 1024;
// Every device since sm_80 has the shared memory to keep a row of up to this many bytes.
constexpr Count most_kept_bytes = 160 << 10;

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

// e^(x - high). Results rounded to 16 bits may use the fast exponential.
template <typename T>
__device__ __forceinline__ Wide<T> exponential(Wide<T> x, Wide<T> high) {
  constexpr float log2_e = 1.44269504088896341F;
  if constexpr (sizeof(T) == 2)
    return exp2_fast((x - high) * log2_e);
  else
    return exp(x - high);
}

template <typename W>
__device__ constexpr W lowest() {
  return std::numeric_limits<W>::lowest();
}

// Calls function(column, here, whole) for this thread's groups of a row. Groups in the middle are
// whole and aligned to 16 bytes; those at the ends have fewer elements.
template <typename T, typename Function>
__device__ __forceinline__ void for_row(const T* row, Count columns, Function function) {
  constexpr int size = Pack<T>::size;
  const int all = static_cast<int>(columns), thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  const int over = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % pack_bytes / sizeof(T));
  const int ahead = min((size - over) % size, all);
  const int end = all - (all - ahead) % size;
  if (thread == 0 && ahead > 0) function(0, ahead, false);
  for (int c = ahead + thread * size; c < end; c += threads * size) function(c, size, true);
  if (thread == threads - 1 && end < all) function(end, all - end, false);
}

// The highest of the numbers seen so far, and the sum of e^(x - highest).
template <typename W>
struct Running {
  W highest = lowest<W>(), sum = 0;
};

// The row becomes exponential(element of `from`) normalise, less what is wanted of it. `from` is the
// row or a copy with the same alignment.
template <typename T, typename Exponential>
__device__ __forceinline__ void become_gradient(T* row, const T* from, Count columns, Count target,
                                                Wide<T> normalise, Wide<T> scale,
                                                const Wanted<Wide<T>>& wanted,
                                                Exponential exponential) {
  using W = Wide<T>;
  const W each = scale * wanted.each;
  const bool has_target = threadIdx.x == 0 && 0 <= target && target < columns;
  const W of_target = has_target ? exponential(widen(row[target])) * normalise - each : W{0};
  __syncthreads();
  for_row(row, columns, [&](int c, int here, bool whole) {
    Pack<T> pack = load(from + c, here, whole);
    for (int i = 0; i < Pack<T>::size; ++i) pack.x[i] = exponential(pack.x[i]) * normalise - each;
    store(row + c, pack, here, whole);
  });
  __syncthreads();
  if (has_target) row[target] = narrow<T>(of_target - scale * wanted.target);
}

// Handles a row without a target.
template <typename T>
__device__ __forceinline__ void become_zero(T* row, Count columns, double& loss) {
  for (Count c = threadIdx.x; c < columns; c += blockDim.x) row[c] = narrow<T>(Wide<T>{0});
  if (threadIdx.x == 0) loss = 0;
}

template <typename T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_kernel(double* losses, T* logits, const std::int32_t* targets, Count rows,
                         Count columns, Count real, Wide<T> scale, Wanted<Wide<T>> wanted,
                         bool keeps) {
  using W = Wide<T>;
  __shared__ W room[32];
  for (Count r = blockIdx.x; r < rows; r += gridDim.x) {
    T* const row = logits + r * columns;
    if (targets[r] == no_target) {
      become_zero(row, real, losses[r]);
      continue;
    }
    T* const kept =
        keeps ? dynamic_shared<T>() + reinterpret_cast<std::uintptr_t>(row) % pack_bytes / sizeof(T)
              : row;
    Running<W> mine;
    W sum_of_logits = 0;
    for_row(row, real, [&](int c, int here, bool whole) {
      const Pack<T> pack = load(row + c, here, whole);
      if (keeps) store(kept + c, pack, here, whole);
      W highest = mine.highest;
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) highest = max(highest, pack.x[i]);
      mine.sum *= exponential<T>(mine.highest, highest);
      mine.highest = highest;
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) {
          mine.sum += exponential<T>(pack.x[i], highest);
          sum_of_logits += pack.x[i];
        }
    });
    const W highest = block_max(mine.highest, room);
    const W sum = block_sum(mine.sum * exponential<T>(mine.highest, highest), room);
    W logits_less_highest = 0;
    if (wanted.each > 0)
      logits_less_highest = block_sum(sum_of_logits, room) - highest * static_cast<W>(real);
    const Count target = targets[r];
    if (threadIdx.x == 0)
      losses[r] = static_cast<double>(log(sum) - wanted.target * (widen(row[target]) - highest) -
                                      wanted.each * logits_less_highest);
    become_gradient(row, kept, real, target, scale / sum, scale, wanted,
                    [&](W x) { return exponential<T>(x, highest); });
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
    for_row(row, real, [&](int c, int here, bool whole) {
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
    for_row(row, columns, [&](int c, int here, bool whole) {
      Pack<T> pack = load(row + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) {
        const bool is_real = i < here && c + i < real;
        if (is_real) plain += pack.x[i] - high;
        pack.x[i] = is_real ? exponential<T>(pack.x[i], high) : W{0};
        exponentials += pack.x[i];
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
    T* const row = logits + r * columns;
    become_gradient(row, row, real, targets[r] - first_column, scale / sums[r], scale, wanted,
                    [](W exponentiated) { return exponentiated; });
  }
}

}  // namespace

void cross_entropy(cudaStream_t stream, double* losses, Slice logits, const std::int32_t* targets,
                   Count rows, Count real, double scale, double smoothing) {
  with_type(logits.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    Geometry geometry = block_per_row(rows, row_threads);
    const Count bytes = (divide_up(real, pack_size<T>) + 1) * pack_bytes;
    const bool keeps = bytes <= most_kept_bytes;
    if (keeps) geometry.shared_bytes = bytes;
    launch(cross_entropy_kernel<T>, geometry, stream, losses, at<T>(logits), targets, rows,
           logits.count / rows, real, static_cast<W>(scale), Wanted<W>(smoothing, real), keeps);
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
