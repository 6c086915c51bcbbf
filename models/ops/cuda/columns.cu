// Sums over rows. A block sums one part of the rows for a group of columns; a second kernel adds
// the parts in order. So the same shape gives the same bits, and no atomics are needed.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

// A row's contribution to the sums of its columns: itself.
template <typename T>
struct RowItself {
  const T* x;
  static constexpr int sums = 1;

  __device__ void add(Wide<T> (&into)[1][Pack<T>::size], Count, Count place, Count here,
                      bool whole) const {
    const Pack<T> pack = load(x + place, here, whole);
    for (int i = 0; i < Pack<T>::size; ++i) into[0][i] += pack.x[i];
  }
};

// For layer norm: a row's contribution to the gradients of the weight and of the bias.
template <typename T>
struct NormGradients {
  const T *dout, *x;
  const Wide<T>*mean, *rstd;
  static constexpr int sums = 2;

  __device__ void add(Wide<T> (&into)[2][Pack<T>::size], Count row, Count place, Count here,
                      bool whole) const {
    const Pack<T> d = load(dout + place, here, whole), v = load(x + place, here, whole);
    const Wide<T> m = mean[row], s = rstd[row];
    for (int i = 0; i < Pack<T>::size; ++i) {
      into[0][i] += d.x[i] * (v.x[i] - m) * s;
      into[1][i] += d.x[i];
    }
  }
};

// parts[part][sum][column]
template <typename T, typename Terms>
__global__ void sum_parts_kernel(Wide<T>* parts, Terms terms, Count rows, Count columns,
                                 bool whole) {
  using W = Wide<T>;
  constexpr int size = Pack<T>::size, warps = ColumnSums::warps;
  __shared__ W of_warps[warps][32 * size + 1];
  const Count first = static_cast<Count>(blockIdx.x) * 32 * size, c = first + threadIdx.x * size;
  const Count begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  W sums[Terms::sums][size] = {};
  if (c < columns)
    for (Count r = begin + threadIdx.y; r < end; r += warps)
      terms.add(sums, r, r * columns + c, columns - c, whole);
  for (int s = 0; s < Terms::sums; ++s) {
    __syncthreads();
    for (int i = 0; i < size; ++i) of_warps[threadIdx.y][threadIdx.x * size + i] = sums[s][i];
    __syncthreads();
    for (Count i = threadIdx.y * 32 + threadIdx.x; i < 32 * size && first + i < columns;
         i += 32 * warps) {
      W sum = 0;
      for (int warp = 0; warp < warps; ++warp) sum += of_warps[warp][i];
      parts[(static_cast<Count>(blockIdx.y) * Terms::sums + s) * columns + first + i] = sum;
    }
  }
}

// into[sum][column] += the parts. Each warp adds every 8th part, in order; then the warps' sums are
// added in order.
template <typename T>
__global__ void add_parts_kernel(T* into_first, T* into_second, const Wide<T>* parts, Count count,
                                 Count columns) {
  constexpr int warps = ColumnSums::warps;
  __shared__ Wide<T> of_warps[warps][32];
  const int s = static_cast<int>(blockIdx.y), sums = static_cast<int>(gridDim.y);
  const Count c = static_cast<Count>(blockIdx.x) * 32 + threadIdx.x;
  Wide<T> sum = 0;
  if (c < columns)
    for (Count part = threadIdx.y; part < count; part += warps)
      sum += parts[(part * sums + s) * columns + c];
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= columns) return;
  for (int warp = 1; warp < warps; ++warp) sum += of_warps[warp][threadIdx.x];
  T* const into = s == 0 ? into_first : into_second;
  into[c] = narrow<T>(widen(into[c]) + sum);
}

template <typename T, typename Terms>
void sum_columns(cudaStream_t stream, T* into_first, T* into_second, const Terms& terms, Count rows,
                 Count columns, void* parts, bool whole) {
  const ColumnSums shape(rows, columns, Pack<T>::size);
  auto* const sums = static_cast<Wide<T>*>(parts);
  launch(sum_parts_kernel<T, Terms>, shape.geometry(), stream, sums, terms, rows, columns, whole);
  launch(add_parts_kernel<T>, shape.adding_geometry(Terms::sums), stream, into_first, into_second,
         sums, shape.parts(), columns);
}

// dpositions[p] += the rows of dout that have this position, in order.
template <typename T>
__global__ void positions_backward_kernel(T* dpositions, const T* dout, RowPlaces places,
                                          Count rows, Count columns, bool whole) {
  constexpr int size = Pack<T>::size;
  const Count packs = (columns + size - 1) / size, length = places.positions.count();
  for (Count i = static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x; i < length * packs;
       i += static_cast<Count>(gridDim.x) * blockDim.x) {
    const Count place = i / packs, c = i % packs * size, here = columns - c;
    T* const into = dpositions + places.positions[place] * columns + c;
    Pack<T> sum = load(into, here, whole);
    for (Count r = (place + length - places.first % length) % length; r < rows; r += length) {
      const Pack<T> d = load(dout + r * columns + c, here, whole);
      for (int k = 0; k < size; ++k) sum.x[k] += d.x[k];
    }
    store(into, sum, here, whole);
  }
}

}  // namespace

Count column_parts_bytes(Count rows, Count columns, DType dtype, int sums) {
  const Count wide = dtype == DType::f64 ? 8 : 4;
  return ColumnSums(rows, columns, 1).parts() * columns * sums * wide;
}

void sum_rows(cudaStream_t stream, Slice sum, Slice x, Count rows, void* parts) {
  with_type(x.dtype, [&]<typename T>(T*) {
    sum_columns<T>(stream, at<T>(sum), nullptr, RowItself<T>{at<T>(x)}, rows, sum.count, parts,
                   in_packs<T>(sum.count, {at<T>(x)}));
  });
}

void layer_norm_backward_weight(cudaStream_t stream, Slice dweight, Slice dbias, Slice dout,
                                Slice x, Slice mean, Slice rstd, Count rows, void* parts) {
  with_type(x.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    sum_columns<T>(stream, at<T>(dweight), at<T>(dbias),
                   NormGradients<T>{at<T>(dout), at<T>(x), at<W>(mean), at<W>(rstd)}, rows,
                   dweight.count, parts, in_packs<T>(dweight.count, {at<T>(dout), at<T>(x)}));
  });
}

void positions_backward(cudaStream_t stream, Slice dpositions, Slice dout, const RowPlaces& places,
                        Count rows) {
  const Count columns = dout.count / rows;
  with_type(dout.dtype, [&]<typename T>(T*) {
    launch(positions_backward_kernel<T>,
           over_elements(places.positions.count() * columns, pack_size<T>), stream,
           at<T>(dpositions), at<T>(dout), places, rows, columns,
           in_packs<T>(columns, {at<T>(dpositions), at<T>(dout)}));
  });
}

}  // namespace lockstep::cuda
