// Matrices that are stored in fewer bits, as a frozen base is under adapters. Each row is cut into
// groups of consecutive numbers. A group has one scale, an f32 of 4 bytes, and then its codes:
//
//   int8   whole numbers from -127 to 127, a byte each; the scale is max |x| / 127
//   fp6    sign, 3 exponent and 2 mantissa bits (e3m2), four codes in 3 bytes; the scale is max |x| / 28
//
//   bytes of a group of G   4 + ceil(G bits / 8)
//   error of a number x     int8: at most scale / 2
//                           fp6: at most |x| / 8, or scale / 32 if that is more
//
// Both round to nearest, ties to even. DeepSpeed's quantiser stores groups in the same way; FP6: Xia et
// al., "FP6-LLM", 2024.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/base/dtype.h"

namespace lockstep {

enum class PackedFormat : std::uint8_t { none, int8, fp6 };
// none, int8 or fp6. Throws Error (bad_input) for another name.
PackedFormat packed_format_from_name(std::string_view name);
std::string_view name_of(PackedFormat format);

struct Packing {
  PackedFormat format = PackedFormat::none;
  Count group = 1;  // numbers; rows have a multiple of them

  constexpr bool exists() const { return format != PackedFormat::none; }
  constexpr Count group_bytes() const {
    const Count bits = format == PackedFormat::int8 ? 8 : 6;
    return scale_bytes + (group * bits + 7) / 8;
  }
  // Of so many numbers, and back. Without a format a number is one element of its parameter.
  constexpr Count bytes(Count numbers) const {
    return exists() ? numbers / group * group_bytes() : numbers;
  }
  constexpr Count numbers(Count bytes) const {
    return exists() ? bytes / group_bytes() * group : bytes;
  }
  bool operator==(const Packing&) const = default;

  static constexpr Count scale_bytes = 4;
};

// Packs whole groups. Throws Error (bad_input) for a number that is not finite.
void pack(std::span<std::byte> into, std::span<const double> numbers, const Packing& packing);

// The number that a group's code stands for, over the group's scale. Any device can call it.
constexpr float number_of_code(const std::byte* codes, Count i, PackedFormat format) {
  if (format == PackedFormat::int8)
    return static_cast<float>(static_cast<std::int8_t>(std::to_integer<std::uint8_t>(codes[i])));
  // A code begins at bit 6 i, and may go on in the next byte.
  const Count byte = 6 * i / 8, shift = 6 * i % 8;
  unsigned bits = std::to_integer<unsigned>(codes[byte]) >> shift;
  if (shift > 2) bits |= std::to_integer<unsigned>(codes[byte + 1]) << (8 - shift);
  const unsigned exponent = bits >> 2 & 7, mantissa = bits & 3;
  const unsigned sixteenths = exponent == 0 ? mantissa : (4 + mantissa) << (exponent - 1);
  const float number = static_cast<float>(sixteenths) / 16;
  return (bits & 32) != 0 ? -number : number;
}

constexpr float scale_of_group(const std::byte* group) {
  std::uint32_t bits = 0;
  for (int i = 0; i < Packing::scale_bytes; ++i)
    bits |= std::to_integer<std::uint32_t>(group[i]) << (8 * i);
  return std::bit_cast<float>(bits);
}

}  // namespace lockstep
