#include "parallel/exchange/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collectives/base/error.h"
#include "collectives/base/float8.h"

namespace lockstep {
namespace {

constexpr std::size_t quantized_together = 256, scaled_together = 32;
static_assert(quantized_together % 2 == 0);

Count blocks_of(Count count, std::size_t block) {
  return (count + static_cast<Count>(block) - 1) / static_cast<Count>(block);
}

// The largest magnitude; NaN if one is NaN, whose bits are larger than those of all other magnitudes.
template <typename T>
T largest_of(std::span<const T> x) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  Bits largest = 0;
  for (const T each : x)
    largest = std::max(largest, std::bit_cast<Bits>(each) & std::numeric_limits<Bits>::max());
  return std::bit_cast<T>(largest);
}

// Calls run(first number, how many, place of its bytes) for each block, with a constant number for whole ones.
template <std::size_t block, std::size_t bytes, typename Run>
void for_each_block(std::size_t count, Run run) {
  const std::size_t whole = count / block;
  for (std::size_t i = 0; i < whole; ++i) run(i * block, block, i * bytes);
  if (count % block != 0) run(whole * block, count % block, whole * bytes);
}

// Eight signs a byte, the first in the lowest bit.
template <typename T>
void put_signs(std::span<const T> x, std::byte* out) {
  for_each_block<8, 1>(x.size(), [&](std::size_t first, std::size_t count, std::size_t byte) {
    std::array<std::uint8_t, 8> is_positive{};
    for (std::size_t i = 0; i < count; ++i) is_positive[i] = x[first + i] >= 0;
    // Moves the lowest bit of byte i to bit i of the highest byte.
    out[byte] = static_cast<std::byte>(
        (std::bit_cast<std::uint64_t>(is_positive) * 0x0102040810204080u) >> 56);
  });
}

template <typename T>
void take_signs(const std::byte* in, T size, std::span<T> x) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr int sign = sizeof(T) * 8 - 1;
  const auto positive = std::bit_cast<Bits>(size);
  for_each_block<8, 1>(x.size(), [&](std::size_t first, std::size_t count, std::size_t byte) {
    const Bits negative = ~static_cast<Bits>(in[byte]);
    for (std::size_t i = 0; i < count; ++i)
      x[first + i] = std::bit_cast<T>(positive ^ ((negative >> i & 1U) << sign));
  });
}

Count sign_bytes(Count count) { return blocks_of(count, 8); }

template <typename T>
class OneBit final : public Codec<T> {
 public:
  Count bytes(Count count) const override {
    return sign_bytes(count) + static_cast<Count>(sizeof(float));
  }
  double scale(std::span<const T> all) const override {
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::size_t i = 0; i < all.size(); ++i)
      squares += static_cast<double>(all[i]) * static_cast<double>(all[i]);
    return all.empty() ? 0 : std::sqrt(squares / static_cast<double>(all.size()));
  }
  void encode(std::span<const T> x, double scale, std::byte* out) const override {
    const auto sent = static_cast<float>(scale);
    std::memcpy(out, &sent, sizeof sent);
    put_signs(x, out + sizeof sent);
  }
  void decode(const std::byte* in, std::span<T> x) const override {
    float scale = 0;
    std::memcpy(&scale, in, sizeof scale);
    take_signs(in + sizeof scale, static_cast<T>(scale), x);
  }
};

template <typename T>
class Sign final : public Codec<T> {
 public:
  Count bytes(Count count) const override { return sign_bytes(count); }
  // Signs cannot say that a number is not finite.
  void encode(std::span<const T> x, double, std::byte* out) const override {
    if (!std::isfinite(largest_of(x)))
      throw Error(ErrorKind::wrong_result, "a gradient is not finite, which signs do not show",
                  {.hint = "lower --lr, add --warmup-steps, or use another --exchange"});
    put_signs(x, out);
  }
  void decode(const std::byte* in, std::span<T> x) const override { take_signs(in, T{1}, x); }
};

// Packs the lower halves of two bytes into one, the first in its lower half.
void pack_halves(std::array<std::uint8_t, quantized_together>& bytes, std::size_t count,
                 std::byte* packed) {
  if (count % 2 == 1) bytes[count] = 0;
  for (std::size_t i = 0; i < (count + 1) / 2; ++i)
    packed[i] = static_cast<std::byte>((bytes[2 * i] & 15U) | bytes[2 * i + 1] << 4U);
}

// Unpacks them again, and extends their signs.
void unpack_halves(const std::byte* packed, std::size_t count,
                   std::array<std::uint8_t, quantized_together>& bytes) {
  const auto with_sign = [](unsigned half) { return static_cast<std::uint8_t>((half ^ 8U) - 8U); };
  for (std::size_t i = 0; i < (count + 1) / 2; ++i) {
    const auto both = static_cast<unsigned>(packed[i]);
    bytes[2 * i] = with_sign(both & 15U);
    bytes[2 * i + 1] = with_sign(both >> 4U);
  }
}

// `bits` of a number: 8, or 4, of which two lie in a byte, the first in its lower half.
template <typename T, int bits>
class Quantized final : public Codec<T> {
 public:
  Count bytes(Count count) const override {
    return (count * bits + 7) / 8 +
           static_cast<Count>(sizeof(float)) * blocks_of(count, quantized_together);
  }
  void encode(std::span<const T> x, double, std::byte* out) const override {
    for_each_block<quantized_together, block_bytes>(
        x.size(), [&](std::size_t first, std::size_t count, std::size_t at) {
          const auto step = static_cast<float>(largest_of(x.subspan(first, count)) / most);
          std::memcpy(out + at, &step, sizeof step);
          std::byte* const codes = out + at + sizeof step;
          // A step that has no inverse: of (nearly) zeros, or not finite.
          if (!std::isnormal(step)) {
            std::memset(codes, 0, (count * bits + 7) / 8);
            return;
          }
          const T inverse = T{1} / static_cast<T>(step);
          std::array<std::uint8_t, quantized_together> bytes;
          for (std::size_t i = 0; i < count; ++i)
            bytes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(
                std::clamp(std::nearbyint(x[first + i] * inverse), T{-most}, T{most})));
          if constexpr (bits == 8)
            std::memcpy(codes, bytes.data(), count);
          else
            pack_halves(bytes, count, codes);
        });
  }
  void decode(const std::byte* in, std::span<T> x) const override {
    for_each_block<quantized_together, block_bytes>(
        x.size(), [&](std::size_t first, std::size_t count, std::size_t at) {
          float step = 0;
          std::memcpy(&step, in + at, sizeof step);
          std::array<std::uint8_t, quantized_together> bytes;
          if constexpr (bits == 8)
            std::memcpy(bytes.data(), in + at + sizeof step, count);
          else
            unpack_halves(in + at + sizeof step, count, bytes);
          for (std::size_t i = 0; i < count; ++i)
            x[first + i] =
                static_cast<T>(step) * static_cast<T>(static_cast<std::int8_t>(bytes[i]));
        });
  }

 private:
  static constexpr int most = (1 << (bits - 1)) - 1;
  static constexpr std::size_t block_bytes = quantized_together * bits / 8 + sizeof(float);
};

// The smallest power of two by which the largest of a block, divided, is at most e4m3's largest number.
// Stored as E8M0: the exponent plus 127. A block of zeros has the smallest one; `not_finite` stands for a
// block with a number that is not finite.
constexpr int not_finite = 128;
template <typename T>
int shared_exponent(T largest) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  constexpr int bias = std::numeric_limits<T>::max_exponent - 1;
  if (!std::isfinite(largest)) return not_finite;
  // 448 is 1.75 * 2^8: what is above moves to the next exponent.
  const Bits moves = (Bits{1} << (mantissa - 2)) - 1;
  return std::clamp(static_cast<int>((std::bit_cast<Bits>(largest) + moves) >> mantissa) - bias - 8,
                    -127, 127);
}
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

template <typename T>
class MxFp8 final : public Codec<T> {
 public:
  Count bytes(Count count) const override { return count + blocks_of(count, scaled_together); }
  // Computes the scales of several blocks first: each takes long, but they can overlap.
  void encode(std::span<const T> x, double, std::byte* out) const override {
    constexpr std::size_t together = 8;
    for_each_block<together * scaled_together, together * block_bytes>(
        x.size(), [&](std::size_t begin, std::size_t numbers, std::size_t place) {
          std::array<T, together> factors;
          const auto for_each = [&](auto run) {
            for_each_block<scaled_together, block_bytes>(
                numbers, [&](std::size_t first, std::size_t count, std::size_t at) {
                  run(x.subspan(begin + first, count), out + place + at,
                      factors[first / scaled_together]);
                });
          };
          for_each([](std::span<const T> block, std::byte* code, T& factor) {
            const int exponent = shared_exponent(largest_of(block));
            *code = static_cast<std::byte>(exponent + 127);
            factor = static_cast<T>(power_of_two(-exponent));
          });
          for_each([](std::span<const T> block, std::byte* code, T factor) {
            for (std::size_t i = 0; i < block.size(); ++i)
              code[1 + i] = static_cast<std::byte>(
                  float8_from_float<Float8E4M3>(static_cast<float>(block[i] * factor)).bits);
          });
        });
  }
  void decode(const std::byte* in, std::span<T> x) const override {
    for_each_block<scaled_together, block_bytes>(
        x.size(), [&](std::size_t first, std::size_t count, std::size_t at) {
          const int exponent = static_cast<int>(in[at]) - 127;
          if (exponent == not_finite) {
            std::ranges::fill(x.subspan(first, count), std::numeric_limits<T>::quiet_NaN());
            return;
          }
          const T factor = static_cast<T>(power_of_two(exponent));
          for (std::size_t i = 0; i < count; ++i)
            x[first + i] =
                static_cast<T>(to_float(Float8E4M3{static_cast<std::uint8_t>(in[at + 1 + i])})) *
                factor;
        });
  }

 private:
  static constexpr std::size_t block_bytes = scaled_together + 1;
};

}  // namespace

template <typename T>
std::unique_ptr<Codec<T>> make_codec(std::string_view name) {
  if (name == "onebit") return std::make_unique<OneBit<T>>();
  if (name == "sign") return std::make_unique<Sign<T>>();
  if (name == "int8") return std::make_unique<Quantized<T, 8>>();
  if (name == "int4") return std::make_unique<Quantized<T, 4>>();
  require(name == "mxfp8", [&] { return "no codec '" + std::string(name) + "'"; });
  return std::make_unique<MxFp8<T>>();
}
template std::unique_ptr<Codec<float>> make_codec(std::string_view);
template std::unique_ptr<Codec<double>> make_codec(std::string_view);

Count encoded_bytes(std::string_view name, Count count) {
  return make_codec<float>(name)->bytes(count);
}

}  // namespace lockstep
