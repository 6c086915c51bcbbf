// Experts that tokens draw where nothing computes scores: in benchmarks, predictions and dry runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

// The Z of "zipf:Z"; none if that is not what the text says, or if Z is not a number from 0 to 10.
std::optional<double> zipf_exponent(std::string_view text);

// A token draws its K experts one after another without replacement, expert e with a weight of
// (e + 1)^-Z; Z = 0 is uniform.
class ZipfExperts {
 public:
  ZipfExperts(double exponent, int experts, int per_token, std::uint64_t seed);

  // The experts of a token, in the order of the draws; valid until the next call. Streams, such as
  // ranks, are independent.
  std::span<const std::int32_t> draw(std::int64_t stream, Count token);

 private:
  int per_token_;
  std::uint64_t seed_;
  std::vector<double> logs_, keys_;  // of the weights
  std::vector<std::int32_t> ordered_;
};

}  // namespace lockstep
