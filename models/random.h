// Random numbers that depend only on where they are used: (seed, stream, index). So every rank can
// draw any of them. The constexpr functions also work on devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace lockstep {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (SplitMix64), 2014.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The part that all indices of a stream share, for loops over them.
constexpr std::uint64_t random_key(std::uint64_t seed, std::int64_t stream) {
  return mix_bits(mix_bits(seed) ^ static_cast<std::uint64_t>(stream));
}

constexpr std::uint64_t random_bits(std::uint64_t key, std::int64_t index) {
  return mix_bits(key ^ static_cast<std::uint64_t>(index));
}
constexpr std::uint64_t random_bits(std::uint64_t seed, std::int64_t stream, std::int64_t index) {
  return random_bits(random_key(seed, stream), index);
}

// Uniform in (0, 1).
inline double random_uniform(std::uint64_t seed, std::int64_t stream, std::int64_t index) {
  return (static_cast<double>(random_bits(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
}

// Standard normal, by Box and Muller, 1958.
inline double random_normal(std::uint64_t seed, std::int64_t stream, std::int64_t index) {
  const double radius = std::sqrt(-2 * std::log(random_uniform(seed, stream, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * random_uniform(seed, stream, 2 * index + 1));
}

}  // namespace lockstep
