// Layer norm: one warp per row. The first reading of a row is from memory, later ones hit the cache.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/row_loops.cuh"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void layer_norm_kernel(T* out, Wide<T>* mean, Wide<T>* rstd, const T* x, const T* weight,
                                  const T* bias, Count rows, Count columns, Wide<T> epsilon,
                                  bool whole) {
  using W = Wide<T>;
  for_rows(rows, [&](Count r) {
    const T* const row = x + r * columns;
    W sum = 0;
    for_packs<T>(columns, [&](Count c, Count here) {
      const Pack<T> pack = load(row + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) sum += pack.x[i];
    });
    const W m = warp_sum(sum) / static_cast<W>(columns);
    W squares = 0;
    for_packs<T>(columns, [&](Count c, Count here) {
      const Pack<T> pack = load(row + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i)
        if (i < here) squares += (pack.x[i] - m) * (pack.x[i] - m);
    });
    const W s = W{1} / sqrt(warp_sum(squares) / static_cast<W>(columns) + epsilon);
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> pack = load(row + c, here, whole);
      const Pack<T> w = load(weight + c, here, whole), b = load(bias + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) pack.x[i] = (pack.x[i] - m) * s * w.x[i] + b.x[i];
      store(out + r * columns + c, pack, here, whole);
    });
    if (threadIdx.x % 32 == 0) {
      mean[r] = m;
      rstd[r] = s;
    }
  });
}

template <typename T>
__global__ void layer_norm_backward_input_kernel(T* dx, const T* base, const T* dout, const T* x,
                                                 const Wide<T>* mean, const Wide<T>* rstd,
                                                 const T* weight, Count rows, Count columns,
                                                 bool whole) {
  using W = Wide<T>;
  for_rows(rows, [&](Count r) {
    const W m = mean[r], s = rstd[r];
    const Count begin = r * columns;
    W sum = 0, projection = 0;
    // Beyond the end of the row dout is 0 and adds nothing.
    for_packs<T>(columns, [&](Count c, Count here) {
      const Pack<T> d = load(dout + begin + c, here, whole), v = load(x + begin + c, here, whole),
                    w = load(weight + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) {
        const W g = d.x[i] * w.x[i];
        sum += g;
        projection += g * (v.x[i] - m) * s;
      }
    });
    sum = warp_sum(sum) / static_cast<W>(columns);
    projection = warp_sum(projection) / static_cast<W>(columns);
    for_packs<T>(columns, [&](Count c, Count here) {
      const Pack<T> d = load(dout + begin + c, here, whole), v = load(x + begin + c, here, whole),
                    w = load(weight + c, here, whole);
      Pack<T> out{};
      if (base) out = load(base + begin + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i)
        out.x[i] += (d.x[i] * w.x[i] - sum - (v.x[i] - m) * s * projection) * s;
      store(dx + begin + c, out, here, whole);
    });
  });
}

}  // namespace

void layer_norm(cudaStream_t stream, Slice out, Slice mean, Slice rstd, Slice x, Slice weight,
                Slice bias, Count rows, double epsilon) {
  const Count columns = weight.count;
  with_type(out.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(layer_norm_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<W>(mean), at<W>(rstd),
           at<T>(x), at<T>(weight), at<T>(bias), rows, columns, static_cast<W>(epsilon),
           in_packs<T>(columns, {at<T>(out), at<T>(x), at<T>(weight), at<T>(bias)}));
  });
}

void layer_norm_backward_input(cudaStream_t stream, Slice dx, Slice base, Slice dout, Slice x,
                               Slice mean, Slice rstd, Slice weight, Count rows) {
  const Count columns = weight.count;
  with_type(dx.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(layer_norm_backward_input_kernel<T>, warp_per_row(rows), stream, at<T>(dx), at<T>(base),
           at<T>(dout), at<T>(x), at<W>(mean), at<W>(rstd), at<T>(weight), rows, columns,
           in_packs<T>(columns, {at<T>(dx), at<T>(base), at<T>(dout), at<T>(x), at<T>(weight)}));
  });
}

}  // namespace lockstep::cuda
