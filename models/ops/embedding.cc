// Tables of tokens and of positions: look-ups of rows, and sums of gradients.
#include <algorithm>
#include <cstring>

#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

// into[place(r)] += dout[r] unless place(r) is negative. Threads divide the columns, so that each
// sum is in the order of the rows.
template <typename T, typename Place>
void add_rows(T* into, const T* dout, Count rows, Count columns, Place place) {
  constexpr Count part = 64;
#pragma omp parallel for schedule(static)
  for (Count begin = 0; begin < columns; begin += part) {
    const Count end = std::min(columns, begin + part);
    for (Count r = 0; r < rows; ++r) {
      if (place(r) < 0) continue;
      const T* const d = dout + r * columns;
      T* const row = into + place(r) * columns;
      for (Count c = begin; c < end; ++c) row[c] += d[c];
    }
  }
}

// The token's row in a part of the table; negative if the part does not have it.
Count row_of(std::int32_t token, std::int32_t first_token, Count here) {
  const Count row = Count{token} - first_token;
  return row < here ? row : -1;
}

}  // namespace

void embedding(std::byte* out, const std::byte* tokens, std::int32_t first_token, Count here,
               const std::int32_t* inputs, Count rows, Count row_bytes) {
  const auto size = static_cast<std::size_t>(row_bytes);
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const Count row = row_of(inputs[r], first_token, here);
    if (row < 0)
      std::memset(out + r * row_bytes, 0, size);
    else
      std::memcpy(out + r * row_bytes, tokens + row * row_bytes, size);
  }
}

template <typename T>
void embedding_backward(T* dtokens, std::int32_t first_token, Count here, const T* dout,
                        const std::int32_t* inputs, Count rows, Count columns) {
  add_rows(dtokens, dout, rows, columns,
           [=](Count r) { return row_of(inputs[r], first_token, here); });
}

template <typename T>
void add_positions(T* out, const T* positions, const RowPlaces& places, Count rows, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const T* const position = positions + places.position(r) * columns;
    T* const o = out + r * columns;
    for (Count c = 0; c < columns; ++c) o[c] += position[c];
  }
}

template <typename T>
void positions_backward(T* dpositions, const T* dout, const RowPlaces& places, Count rows,
                        Count columns) {
  add_rows(dpositions, dout, rows, columns, [=](Count r) { return places.position(r); });
}

template void embedding_backward(float*, std::int32_t, Count, const float*, const std::int32_t*,
                                 Count, Count);
template void embedding_backward(double*, std::int32_t, Count, const double*, const std::int32_t*,
                                 Count, Count);
template void add_positions(float*, const float*, const RowPlaces&, Count, Count);
template void add_positions(double*, const double*, const RowPlaces&, Count, Count);
template void positions_backward(float*, const float*, const RowPlaces&, Count, Count);
template void positions_backward(double*, const double*, const RowPlaces&, Count, Count);

}  // namespace lockstep::host
