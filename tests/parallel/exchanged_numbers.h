// Shared by tests of exchanges: numbers that each rank has, and what a codec makes of them.
#pragma once

#include <random>
#include <string_view>
#include <vector>

#include "parallel/exchange/codec.h"

namespace lockstep::test {

using Numbers = std::vector<double>;

inline Numbers decoded(std::string_view codec, const Numbers& x) {
  const auto made = make_codec<double>(codec);
  std::vector<std::byte> wire(static_cast<std::size_t>(made->bytes(std::ssize(x))));
  made->encode(x, made->scale(x), wire.data());
  Numbers back(x.size());
  made->decode(wire.data(), back);
  return back;
}

inline Numbers gradients_of(int rank, int step, Count count) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step));
  std::normal_distribution<double> normal;
  Numbers x(static_cast<std::size_t>(count));
  for (double& each : x) each = normal(random);
  return x;
}

}  // namespace lockstep::test
