// The two 16-bit floating types as storage, with conversions that round to nearest even and keep
// NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

struct BFloat16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline BFloat16 bfloat16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could clear a NaN's last set bit and make it infinite. Set a bit that stays.
  if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  // Multiplying by 2^112 moves the exponent's bias from 15 to 127, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t bits =
      magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

inline Half half_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // rounds beyond the largest finite value, 65504
  } else if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 makes the FPU round at the right bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  }
  return {static_cast<std::uint16_t>(half | sign)};
}

}  // namespace lockstep
