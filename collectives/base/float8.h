// The two 8-bit floating types of the OCP specification (OFP8, 2023) as storage. Conversions round
// to nearest even, keep NaN, and give the largest finite value where a number is too large, as
// NCCL's and CUDA's saturating ones do: e4m3 has no infinity.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {

// `largest`: the bits of the largest finite value.
template <int mantissa_bits, int exponent_bias, std::uint32_t largest>
struct Float8 {
  static constexpr int mantissa = mantissa_bits, bias = exponent_bias;
  static constexpr std::uint32_t most = largest;
  std::uint8_t bits;
};
using Float8E4M3 = Float8<3, 7, 0x7e>;   // up to 448
using Float8E5M2 = Float8<2, 15, 0x7b>;  // up to 57344; above are infinity and NaN

template <int mantissa, int bias, std::uint32_t most>
float to_float(Float8<mantissa, bias, most> value) {
  const std::uint32_t sign = (value.bits & 0x80u) << 24;
  const std::uint32_t magnitude = value.bits & 0x7fu, moved = magnitude << (23 - mantissa);
  // Multiplying moves the exponent's bias to 127, subnormals included.
  const float moves_bias = std::bit_cast<float>(static_cast<std::uint32_t>(254 - bias) << 23);
  const float scaled = std::bit_cast<float>(moved) * moves_bias;
  const std::uint32_t bits =
      magnitude > most ? moved | 0x7f800000u : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

// Without a branch, so that compilers convert many numbers at once.
template <typename F>
F float8_from_float(float value) {
  constexpr int dropped = 23 - F::mantissa;
  constexpr std::uint32_t moved_bias = static_cast<std::uint32_t>(127 - F::bias) << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t clipped = std::min(magnitude, (F::most << dropped) + moved_bias);
  // Adding half of the last bit that stays, less one unless that bit is set, rounds: ties to even.
  const std::uint32_t half = 1u << (dropped - 1), last = (clipped >> dropped) & 1u;
  const std::uint32_t normal = (clipped + half - 1 + last - moved_bias) >> dropped;
  // Adding a number whose last bit is worth as much as a subnormal's makes the FPU round.
  constexpr std::uint32_t adds = moved_bias + (static_cast<std::uint32_t>(dropped + 1) << 23);
  const float sum = std::bit_cast<float>(clipped) + std::bit_cast<float>(adds);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(sum) - adds;
  const std::uint32_t rounded = clipped < moved_bias + (1u << 23) ? subnormal : normal;
  const std::uint32_t code = magnitude > 0x7f800000u ? 0x7fu : rounded;
  return {static_cast<std::uint8_t>(code | ((bits >> 24) & 0x80u))};
}

}  // namespace lockstep
