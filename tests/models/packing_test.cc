// Packed matrices: their codes and bytes, and the error of each number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "collectives/base/error.h"
#include "models/backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

std::vector<std::byte> packed(const std::vector<double>& numbers, const Packing& packing) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(packing.bytes(std::ssize(numbers))));
  pack(bytes, numbers, packing);
  return bytes;
}

template <typename T = double>
std::vector<T> unpacked(std::vector<std::byte> bytes, const Packing& packing) {
  const Count count = std::ssize(bytes);
  std::vector<T> numbers(static_cast<std::size_t>(packing.numbers(count)));
  host_backend().unpack(slice(numbers), {bytes.data(), count, DType::u8, &host_device()}, packing);
  return numbers;
}

// What the codes of each format stand for, without a scale.
std::vector<double> numbers_of(PackedFormat format) {
  std::vector<double> all;
  if (format == PackedFormat::int8)
    for (int i = 0; i <= 127; ++i) all.push_back(i);
  else
    for (int exponent = 0; exponent < 8; ++exponent)
      for (int mantissa = 0; mantissa < 4; ++mantissa)
        all.push_back(exponent == 0 ? mantissa / 16.0
                                    : std::ldexp(1 + mantissa / 4.0, exponent - 3));
  return all;
}

class Packed : public testing::TestWithParam<PackedFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, Packed, testing::Values(PackedFormat::int8, PackedFormat::fp6),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(Packed, KeepsTheNumbersOfItsCodes) {
  std::vector<double> numbers = numbers_of(GetParam());
  const double largest = numbers.back();
  EXPECT_EQ(largest, GetParam() == PackedFormat::int8 ? 127 : 28);
  for (std::size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  // Groups of any length, each with the largest number and a scale of its own.
  for (const Count group : {1, 2, 3, 4, 5, 17}) {
    const Packing packing{GetParam(), group + 1};
    std::vector<double> grouped;
    for (std::size_t i = 0; i + static_cast<std::size_t>(group) <= numbers.size();
         i += static_cast<std::size_t>(group)) {
      const double scale = std::ldexp(1, static_cast<int>(i % 40) - 20);
      grouped.push_back(-largest * scale);
      for (std::size_t k = i; k < i + static_cast<std::size_t>(group); ++k)
        grouped.push_back(numbers[k] * scale);
    }
    EXPECT_EQ(unpacked(packed(grouped, packing), packing), grouped) << group;
  }
}

// The nearest code, of two equally near ones the even one. `step` is the scale.
TEST_P(Packed, RoundsToTheNearest) {
  const std::vector<double> codes = numbers_of(GetParam());
  const double largest = codes.back();
  const Packing packing{GetParam(), 8};
  std::vector<double> numbers = normals(8 * 400, 3);
  for (std::size_t i = 0; i < codes.size() - 1; ++i) {
    numbers.insert(numbers.end(), {largest, (codes[i] + codes[i + 1]) / 2, -codes[i]});
    numbers.resize((numbers.size() + 7) / 8 * 8);
  }
  const std::vector<double> got = unpacked(packed(numbers, packing), packing);
  for (std::size_t g = 0; g < numbers.size(); g += 8) {
    double most = 0;
    for (std::size_t i = g; i < g + 8; ++i) most = std::max(most, std::abs(numbers[i]));
    const double step = static_cast<float>(most / largest);
    for (std::size_t i = g; i < g + 8; ++i) {
      const double x = std::abs(numbers[i]) / step;
      std::size_t nearest = 0;
      for (std::size_t c = 1; c < codes.size(); ++c) {
        const double further = std::abs(x - codes[nearest]), distance = std::abs(x - codes[c]);
        if (distance < further || (distance == further && c % 2 == 0)) nearest = c;
      }
      ASSERT_EQ(got[i], std::copysign(codes[nearest] * step, numbers[i])) << numbers[i];
      const double error = std::abs(got[i] - numbers[i]), slack = 1e-6 * most;
      ASSERT_LE(error, GetParam() == PackedFormat::int8
                           ? step / 2 + slack
                           : std::max(std::abs(numbers[i]) / 8, step / 32) + slack);
    }
  }
}

TEST_P(Packed, IsTheSameInEveryType) {
  const Packing packing{GetParam(), 8};
  const std::vector<double> numbers = normals(64, 5);
  const std::vector<std::byte> bytes = packed(numbers, packing);
  EXPECT_EQ(unpacked<float>(bytes, packing), as<float>(unpacked(bytes, packing)));
}

TEST_P(Packed, ZerosHaveNoScaleAndOtherNumbersAreRefused) {
  const Packing packing{GetParam(), 4};
  const std::vector<double> zeros(4);
  EXPECT_EQ(packed(zeros, packing),
            std::vector<std::byte>(static_cast<std::size_t>(packing.bytes(4))));
  EXPECT_EQ(unpacked(packed(zeros, packing), packing), zeros);
  for (const double x :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(packed({1, 2, x, 3}, packing), Error);
}

// One scale of 4 bytes, then the codes; the lowest bits are the first code's.
TEST(Packing, HasTheseBytes) {
  EXPECT_EQ((Packing{PackedFormat::int8, 32}.bytes(64)), 2 * (4 + 32));
  EXPECT_EQ((Packing{PackedFormat::fp6, 512}.bytes(512)), 4 + 384);
  EXPECT_EQ((Packing{PackedFormat::fp6, 5}.bytes(10)), 2 * (4 + 4));
  EXPECT_EQ((Packing{}.bytes(10)), 10);
  const auto bytes_of = [](std::initializer_list<int> all) {
    std::vector<std::byte> bytes;
    for (const int byte : all) bytes.push_back(static_cast<std::byte>(byte));
    return bytes;
  };
  // 28 has the code 31, 1 (exponent 3, mantissa 0) 12, -1/16 33 and 0 0: bits 31 | 12 << 6 | 33 << 12.
  EXPECT_EQ(packed({28, 1, -1 / 16.0, 0}, {PackedFormat::fp6, 4}),
            bytes_of({0, 0, 0x80, 0x3f, 0x1f, 0x13, 0x02}));
  EXPECT_EQ(packed({254, -2, 4}, {PackedFormat::int8, 3}), bytes_of({0, 0, 0, 0x40, 127, 255, 2}));
}

TEST(Packing, NamesItsFormats) {
  for (const PackedFormat format : {PackedFormat::none, PackedFormat::int8, PackedFormat::fp6})
    EXPECT_EQ(packed_format_from_name(name_of(format)), format);
  EXPECT_THROW(packed_format_from_name("int4"), Error);
}

}  // namespace
}  // namespace lockstep
