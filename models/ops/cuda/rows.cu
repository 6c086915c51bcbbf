// Biases, dropout, positions and look-up of tokens: one warp per row; each element is read and
// written once.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/row_loops.cuh"
#include "models/ops/dropout_mask.h"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void add_bias_kernel(T* out, const T* base, const T* bias, Count rows, Count columns,
                                bool whole) {
  for_rows(rows, [&](Count r) {
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> sum = load(bias + c, here, whole);
      if (base) {
        const Pack<T> from = load(base + r * columns + c, here, whole);
        for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] += from.x[i];
      }
      store(out + r * columns + c, sum, here, whole);
    });
  });
}

// Rows of several matrices.
template <typename T>
struct RowsOfEach {
  T* data;
  Count rows, stride, distance;

  explicit RowsOfEach(const Matrices& matrices)
      : data(at<T>(matrices.first.slice)),
        rows(matrices.first.rows),
        stride(matrices.first.stride),
        distance(matrices.distance) {}
  __device__ T* row(Count r) const { return data + r / rows * distance + r % rows * stride; }
  bool in_packs() const {
    return cuda::in_packs<T>(stride, {data}) && distance % pack_size<T> == 0;
  }
};

template <typename Into, typename From>
__global__ void copy_kernel(RowsOfEach<Into> into, RowsOfEach<const From> from, Count rows,
                            Count columns, bool adds, bool whole) {
  for_rows(rows, [&](Count r) {
    Into* const to = into.row(r);
    const From* const of = from.row(r);
    if constexpr (std::is_same_v<Into, From>) {
      for_packs<Into>(columns, [&](Count c, Count here) {
        const bool at_once = whole && here >= Pack<Into>::size;
        Pack<Into> pack = load(of + c, here, at_once);
        if (adds) {
          const Pack<Into> before = load(to + c, here, at_once);
          for (int i = 0; i < Pack<Into>::size; ++i) pack.x[i] += before.x[i];
        }
        store(to + c, pack, here, at_once);
      });
    } else {
      for (Count c = threadIdx.x % 32; c < columns; c += 32) {
        const auto value = static_cast<Wide<Into>>(widen(of[c]));
        to[c] = narrow<Into>(adds ? widen(to[c]) + value : value);
      }
    }
  });
}

// out = base + mask(x + bias). bias and base may be empty. `masks`: whether there is dropout.
template <typename T>
__global__ void masked_sum_kernel(T* out, const T* base, const T* x, const T* bias, Count rows,
                                  Count columns, Dropout dropout, host::DropoutMask<Wide<T>> mask,
                                  bool masks, bool whole) {
  for_rows(rows, [&](Count r) {
    const Count first_index = masks ? dropout.index(r, columns) : 0;
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> sum = load(x + r * columns + c, here, whole);
      if (bias) {
        const Pack<T> b = load(bias + c, here, whole);
        for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] += b.x[i];
      }
      if (masks) {
        for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] = mask(sum.x[i], first_index + c + i);
      }
      if (base) {
        const Pack<T> from = load(base + r * columns + c, here, whole);
        for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] += from.x[i];
      }
      store(out + r * columns + c, sum, here, whole);
    });
  });
}

// One group is one row.
template <typename T>
__global__ void unpack_kernel(T* out, const std::byte* packed, Count groups, Packing packing) {
  for_rows(groups, [&](Count g) {
    const std::byte* const group = packed + g * packing.group_bytes();
    const auto scale = static_cast<Wide<T>>(scale_of_group(group));
    for (Count i = threadIdx.x % 32; i < packing.group; i += 32)
      out[g * packing.group + i] =
          narrow<T>(scale * static_cast<Wide<T>>(
                                number_of_code(group + Packing::scale_bytes, i, packing.format)));
  });
}

// out[r] += positions[places.position(r)]
template <typename T>
__global__ void add_positions_kernel(T* out, const T* positions, RowPlaces places, Count rows,
                                     Count columns, bool whole) {
  for_rows(rows, [&](Count r) {
    const T* const position = positions + places.position(r) * columns;
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> sum = load(out + r * columns + c, here, whole);
      const Pack<T> add = load(position + c, here, whole);
      for (int i = 0; i < Pack<T>::size; ++i) sum.x[i] += add.x[i];
      store(out + r * columns + c, sum, here, whole);
    });
  });
}

template <typename T>
__global__ void embedding_kernel(T* out, const T* tokens, std::int32_t first_token, Count here_rows,
                                 const std::int32_t* inputs, Count rows, Count columns,
                                 bool whole) {
  for_rows(rows, [&](Count r) {
    const Count row = static_cast<Count>(inputs[r]) - first_token;
    const bool is_here = 0 <= row && row < here_rows;
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> value{};
      if (is_here) value = load(tokens + row * columns + c, here, whole);
      store(out + r * columns + c, value, here, whole);
    });
  });
}

}  // namespace

void copy(cudaStream_t stream, const Matrices& into, const Matrices& from, bool adds) {
  const Count rows = into.number * into.first.rows;
  with_type(into.first.slice.dtype, [&]<typename Into>(Into*) {
    with_type(from.first.slice.dtype, [&]<typename From>(From*) {
      const RowsOfEach<Into> to(into);
      const RowsOfEach<const From> of(from);
      launch(copy_kernel<Into, From>, warp_per_row(rows), stream, to, of, rows, into.first.columns,
             adds, to.in_packs() && of.in_packs());
    });
  });
}

void add_bias(cudaStream_t stream, Slice out, Slice base, Slice bias, Count rows) {
  const Count columns = bias.count;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(add_bias_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<T>(base), at<T>(bias),
           rows, columns, in_packs<T>(columns, {at<T>(out), at<T>(base), at<T>(bias)}));
  });
}

void bias_dropout_add(cudaStream_t stream, Slice out, Slice base, Slice x, Slice bias, Count rows,
                      const Dropout& dropout) {
  const Count columns = x.count / rows;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(masked_sum_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<T>(base), at<T>(x),
           at<T>(bias), rows, columns, dropout, host::DropoutMask<Wide<T>>(dropout),
           dropout.rate > 0,
           in_packs<T>(columns, {at<T>(out), at<T>(base), at<T>(x), at<T>(bias)}));
  });
}

void dropout(cudaStream_t stream, Slice out, Slice x, Count rows, const Dropout& which) {
  bias_dropout_add(stream, out, {}, x, {}, rows, which);
}

void unpack(cudaStream_t stream, Slice out, Slice packed, const Packing& packing) {
  const Count groups = out.count / packing.group;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(unpack_kernel<T>, warp_per_row(groups), stream, at<T>(out), packed.data, groups,
           packing);
  });
}

void add_positions(cudaStream_t stream, Slice out, Slice positions, const RowPlaces& places,
                   Count rows) {
  const Count columns = out.count / rows;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(add_positions_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<T>(positions),
           places, rows, columns, in_packs<T>(columns, {at<T>(out), at<T>(positions)}));
  });
}

void embedding(cudaStream_t stream, Slice out, Slice tokens, std::int32_t first_token,
               const std::int32_t* inputs, Count rows) {
  const Count columns = out.count / rows;
  with_type(out.dtype, [&]<typename T>(T*) {
    launch(embedding_kernel<T>, warp_per_row(rows), stream, at<T>(out), at<T>(tokens), first_token,
           tokens.count / columns, inputs, rows, columns,
           in_packs<T>(columns, {at<T>(out), at<T>(tokens)}));
  });
}

}  // namespace lockstep::cuda
