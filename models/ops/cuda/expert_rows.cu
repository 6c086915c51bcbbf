// Rows that go to experts and come back: one warp per row.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/row_loops.cuh"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void gather_rows_kernel(T* out, const T* x, const std::int32_t* tokens,
                                   const double* factors, Count rows, Count columns, bool whole) {
  for_rows(rows, [&](Count r) {
    const auto factor = factors ? static_cast<Wide<T>>(factors[r]) : Wide<T>{1};
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> pack = load(x + tokens[r] * columns + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) pack.x[i] *= factor;
      store(out + r * columns + c, pack, here, whole);
    });
  });
}

template <typename T>
__global__ void combine_rows_kernel(T* out, const T* base, const T* x, const std::int32_t* rows,
                                    const double* factors, Count tokens, Count per_token,
                                    Count columns, bool whole) {
  for_rows(tokens, [&](Count t) {
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> sum{};
      if (base) sum = load(base + t * columns + c, here, whole);
      for (Count k = t * per_token; k < (t + 1) * per_token; ++k) {
        if (rows[k] < 0) continue;
        const auto factor = factors ? static_cast<Wide<T>>(factors[k]) : Wide<T>{1};
        const Pack<T> row = load(x + rows[k] * columns + c, here, whole);
        for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] += factor * row.x[i];
      }
      store(out + t * columns + c, sum, here, whole);
    });
  });
}

template <typename T>
__global__ void row_products_kernel(Wide<T>* products, const T* dout, const T* x,
                                    const std::int32_t* rows, Count all, Count per_token,
                                    Count columns) {
  for_rows(all, [&](Count k) {
    Wide<T> sum = 0;
    if (rows[k] >= 0)
      for (Count c = threadIdx.x % 32; c < columns; c += 32)
        sum += widen(dout[k / per_token * columns + c]) * widen(x[rows[k] * columns + c]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) products[k] = sum;
  });
}

}  // namespace

void gather_rows(cudaStream_t stream, Slice out, Slice x, const std::int32_t* tokens,
                 const double* factors, Count rows) {
  const Count columns = out.count / rows;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(gather_rows_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<T>(x), tokens, factors,
           rows, columns, in_packs<T>(columns, {at<T>(out), at<T>(x)}));
  });
}

void combine_rows(cudaStream_t stream, Slice out, Slice base, Slice x, const std::int32_t* rows,
                  const double* factors, Count tokens, Count per_token) {
  const Count columns = out.count / tokens;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(combine_rows_kernel<T>, warp_per_row(tokens), stream, at<T>(out), at<T>(base), at<T>(x),
           rows, factors, tokens, per_token, columns,
           in_packs<T>(columns, {at<T>(out), at<T>(base), at<T>(x)}));
  });
}

void row_products(cudaStream_t stream, Slice products, Slice dout, Slice x,
                  const std::int32_t* rows, Count tokens, Count per_token) {
  const Count all = tokens * per_token;
  with_type(dout.dtype, [&]<typename T>(T*) {
    launch(row_products_kernel<T>, warp_per_row(all), stream, at<Wide<T>>(products), at<T>(dout),
           at<T>(x), rows, all, per_token, dout.count / tokens);
  });
}

}  // namespace lockstep::cuda
