// How many bytes ranks send each other in a benchmark of all_to_all_v.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/algorithm.h"

namespace lockstep {

// Either a rule for any size, or a matrix of bytes.
struct Skew {
  // Every rank sends rank j a share proportional to 1 / (j + 1)^zipf, so rank 0 receives the most.
  // 0: uniform.
  double zipf = 0;
  CountMatrix bytes;
  std::int64_t mean_bytes = 0;   // of the matrix: what a rank sends, mean over ranks, rounded down
  std::string name = "uniform";  // in results: "zipf:1.2", or "matrix-" and a checksum
};

// Reads "uniform" or "zipf:1.2". Throws Error (bad_input).
Skew skew_from_name(std::string_view text);

// Reads a text file with a line for each sender: its bytes for rank 0, for rank 1 and so on, with
// K, M or G, separated by spaces or tabs. They must be whole elements of all `dtypes`. Throws Error
// (bad_input) with the file, line and column.
Skew read_matrix(const std::string& path, int ranks, std::span<const DType> dtypes);

// The counts of a point where each rank sends `count` elements; empty if all pairs have the same.
CountMatrix counts_of(const Skew& skew, Count count, int ranks, Count element_bytes);

// "zipf:1.2: rank 0 is the busiest, it receives 96 bytes from others, 1.5 times what a rank sends
// on average". Empty if all pairs have the same count.
std::string described(const Skew& skew, const Problem& problem);

}  // namespace lockstep
