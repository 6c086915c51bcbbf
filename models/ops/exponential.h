// e^x as plain arithmetic that compilers vectorise. The library's needs a call per element.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep::host {

// x = n ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n e^r, with e^r by its Taylor series, whose remainder
// after r^7 is below 6e-9. Within 2 units in the last place for x from -87 to 88. Beyond that range
// it returns the value at its end, almost zero or far more than a float sum can hold. NaN stays NaN.
inline float exponential(float x) {
  constexpr float least = -87.0F, most = 88.0F;
  constexpr float inverse_ln_2 = 1.44269504F;
  constexpr float ln_2_high = 0.693359375F,
                  ln_2_low = -2.12194440e-4F;  // high has 9 bits: n * high is exact
  const float bounded = std::min(std::max(x, least), most);
  const float n = std::rint(bounded * inverse_ln_2);
  const float r = bounded - n * ln_2_high - n * ln_2_low;
  float sum = 1.0F / 5040;
  for (const float coefficient : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    sum = sum * r + coefficient;
  constexpr std::int32_t exponent_bias = 127, mantissa_bits = 23;
  const std::int32_t power = n == n ? static_cast<std::int32_t>(n) : 0;
  return sum * std::bit_cast<float>((power + exponent_bias) << mantissa_bits);
}

// 2^x for x up to 0, in fewer instructions: 2^x = 2^n 2^r with |r| <= 1/2, with 2^r by a polynomial
// through Chebyshev's points, whose error is below 2e-9. Below -125 it returns the value there,
// almost zero. NaN stays NaN. Above 128 it has no meaning: backward asks for keys that a query does not see
// and then clears them.
inline float power_of_2(float x) {
  constexpr float least = -125.0F;
  const float bounded = std::max(x, least);
  const float n = std::rint(bounded), r = bounded - n;
  float sum = 1.5461844e-4F;
  for (const float coefficient :
       {1.3400711e-3F, 9.6180302e-3F, 5.5503249e-2F, 2.4022652e-1F, 6.9314718e-1F, 1.0F})
    sum = sum * r + coefficient;
  constexpr int mantissa_bits = 23;
  const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(n));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum) + (power << mantissa_bits));
}

// Tests of equality need every bit, and their speed does not matter.
inline double exponential(double x) { return std::exp(x); }
inline double power_of_2(double x) { return std::exp2(x); }

}  // namespace lockstep::host
