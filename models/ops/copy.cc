// Copies matrices between floating-point types and strides.
#include <fmt/format.h>

#include <type_traits>

#include "collectives/base/error.h"
#include "collectives/base/half.h"
#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

template <typename Function>
void with_floating(DType dtype, Function function) {
  if (dtype == DType::f32) return function(float{});
  if (dtype == DType::f64) return function(double{});
  if (dtype == DType::bf16) return function(BFloat16{});
  if (dtype == DType::f16) return function(Half{});
  require(false, fmt::format("a matrix of {} is not copied", name_of(dtype)),
          "choose f64, f32, bf16 or f16");
}

inline float widened(BFloat16 x) { return to_float(x); }
inline float widened(Half x) { return to_float(x); }
inline float widened(float x) { return x; }
inline double widened(double x) { return x; }

template <typename T, typename Wide>
T rounded(Wide x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return bfloat16_from_float(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, Half>)
    return half_from_float(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

}  // namespace

void copy(const Matrix& into, const Matrix& from, bool adds) {
  with_floating(into.slice.dtype, [&]<typename Into>(Into) {
    with_floating(from.slice.dtype, [&]<typename From>(From) {
#pragma omp parallel for schedule(static)
      for (Count r = 0; r < into.rows; ++r) {
        Into* const to = reinterpret_cast<Into*>(into.slice.data) + r * into.stride;
        const From* const row = reinterpret_cast<const From*>(from.slice.data) + r * from.stride;
        if (adds)
          for (Count c = 0; c < into.columns; ++c)
            to[c] = rounded<Into>(widened(to[c]) + widened(row[c]));
        else
          for (Count c = 0; c < into.columns; ++c) to[c] = rounded<Into>(widened(row[c]));
      }
    });
  });
}

}  // namespace lockstep::host
