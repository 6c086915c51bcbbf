#include "models/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr double largest_int8 = 127, largest_fp6 = 28;

// The code of a number from -28 to 28.
unsigned fp6_of(double x) {
  constexpr int least_exponent = -2;  // of normal numbers; below, steps stay as wide
  const double size = std::abs(x);
  const int exponent = size == 0 ? least_exponent : std::max(std::ilogb(size), least_exponent);
  // In steps of a quarter of 2^exponent. A carry into the next exponent has the next code.
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 2 - exponent)));
  const unsigned code = static_cast<unsigned>(exponent - least_exponent) * 4 + steps;
  return std::signbit(x) ? code | 32U : code;
}

void put(std::byte* codes, Count i, double scaled, PackedFormat format) {
  if (format == PackedFormat::int8) {
    const double whole = std::clamp(std::nearbyint(scaled), -largest_int8, largest_int8);
    codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(whole));
    return;
  }
  const unsigned code = fp6_of(std::clamp(scaled, -largest_fp6, largest_fp6));
  const Count byte = 6 * i / 8, shift = 6 * i % 8;
  codes[byte] |= static_cast<std::byte>(code << shift);
  if (shift > 2) codes[byte + 1] |= static_cast<std::byte>(code >> (8 - shift));
}

}  // namespace

PackedFormat packed_format_from_name(std::string_view name) {
  if (name == "none") return PackedFormat::none;
  if (name == "int8") return PackedFormat::int8;
  require(name == "fp6", fmt::format("--lora-base '{}'", name), "choose none, int8 or fp6");
  return PackedFormat::fp6;
}

std::string_view name_of(PackedFormat format) {
  return format == PackedFormat::none ? "none" : format == PackedFormat::int8 ? "int8" : "fp6";
}

void pack(std::span<std::byte> into, std::span<const double> numbers, const Packing& packing) {
  const auto group = static_cast<std::size_t>(packing.group),
             bytes = static_cast<std::size_t>(packing.group_bytes());
  std::ranges::fill(into, std::byte{0});
  for (std::size_t g = 0; g * group < numbers.size(); ++g) {
    const std::span<const double> own = numbers.subspan(g * group, group);
    double largest = 0;
    for (const double x : own) {
      require(std::isfinite(x),
              fmt::format("--lora-base {} with a weight of {}", name_of(packing.format), x),
              "the weights of --init must be finite");
      largest = std::max(largest, std::abs(x));
    }
    const auto scale = static_cast<float>(
        largest / (packing.format == PackedFormat::int8 ? largest_int8 : largest_fp6));
    if (scale == 0) continue;
    std::byte* const at = into.data() + g * bytes;
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    for (int i = 0; i < Packing::scale_bytes; ++i) at[i] = static_cast<std::byte>(bits >> (8 * i));
    for (std::size_t i = 0; i < group; ++i)
      put(at + Packing::scale_bytes, static_cast<Count>(i), own[i] / static_cast<double>(scale),
          packing.format);
  }
}

}  // namespace lockstep
