// Arithmetic on the GPU: types of 16 and 8 bits in f32, all others in their own type. Conversions
// round as those of half.h and float8.h do, bit for bit.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "collectives/base/float8.h"
#include "collectives/base/half.h"

namespace lockstep::cuda {

template <typename T>
struct Number {
  using Wide = T;
  static __device__ T widen(T value) { return value; }
  static __device__ T narrow(T value) { return value; }
};

template <>
struct Number<BFloat16> {
  using Wide = float;
  static __device__ float widen(BFloat16 value) {
    return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
  }
  static __device__ BFloat16 narrow(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
    return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
  }
};

template <>
struct Number<Half> {
  using Wide = float;
  static __device__ float widen(Half value) {
    const std::uint32_t magnitude = value.bits & 0x7fffu;
    // The GPU's conversion would replace every NaN by the same one.
    if (magnitude > 0x7c00u)
      return __uint_as_float((value.bits & 0x8000u) << 16 | magnitude << 13 | 0x7f800000u);
    __half half;
    memcpy(&half, &value.bits, sizeof half);
    return __half2float(half);
  }
  static __device__ Half narrow(float value) {
    const auto sign = static_cast<std::uint16_t>(__float_as_uint(value) >> 16 & 0x8000u);
    if (value != value) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
    const __half half = __float2half_rn(value);
    Half bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
  }
};

template <int mantissa, int bias, std::uint32_t most>
struct Number<Float8<mantissa, bias, most>> {
  using Wide = float;
  using Narrow = Float8<mantissa, bias, most>;
  static constexpr int dropped = 23 - mantissa;

  static __device__ float widen(Narrow value) {
    const std::uint32_t sign = (value.bits & 0x80u) << 24;
    const std::uint32_t magnitude = value.bits & 0x7fu, moved = magnitude << dropped;
    const float scaled = __uint_as_float(moved) * __uint_as_float((254u - bias) << 23);
    return __uint_as_float(sign |
                           (magnitude > most ? moved | 0x7f800000u : __float_as_uint(scaled)));
  }
  static __device__ Narrow narrow(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    const std::uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
    std::uint32_t result;
    if (magnitude > 0x7f800000u) {
      result = 0x7f;
    } else if (magnitude < (128u - bias) << 23) {
      constexpr std::uint32_t adds = (151u - bias - mantissa) << 23;
      result = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(adds)) - adds;
    } else {
      const std::uint32_t even = (magnitude >> dropped) & 1, half = (1u << (dropped - 1)) - 1;
      const std::uint32_t rounded = (magnitude + half + even) >> dropped;
      result = rounded - ((127u - bias) << mantissa);
      if (result > most) result = most;
    }
    return {static_cast<std::uint8_t>(result | sign)};
  }
};

// `lanes` elements, read and written at once.
template <typename T, int lanes>
struct alignas(sizeof(T) * lanes) Lanes {
  T of[lanes];
};

}  // namespace lockstep::cuda
