// The norm of gradients that are spread over ranks. Each rank has the sum of squares of its own
// gradients.
#pragma once

#include <string_view>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {

// Gives every rank the same bits.
inline constexpr std::string_view norm_algorithm = "recursive_doubling";
inline constexpr const char* norm_label = "norm";

// To call before a rank squares its first gradient.
void begin_norm(const Communicator& world);
// `square` becomes its sum over the ranks.
void sum_of_norm(Communicator& ranks, double& square);

// What a rank sends and receives for the norm, in elements of 8 bytes.
inline Traffic norm_traffic(int ranks, int rank) {
  return find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm)
      .traffic({.ranks = ranks, .count = 1, .element_bytes = sizeof(double)}, rank);
}

// Scratch of the norm's algorithm.
inline Count norm_scratch_bytes(int ranks, int rank) {
  const auto scratch =
      find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm).scratch;
  return scratch({.ranks = ranks, .count = 1}, rank) * static_cast<Count>(sizeof(double));
}

}  // namespace lockstep
