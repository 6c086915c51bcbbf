// How many threads run each kind of kernel. Plain arithmetic, without CUDA.
#pragma once

#include "collectives/base/cuda/geometry.h"

namespace lockstep::cuda {

// One warp per row, in strides of all warps.
constexpr Geometry warp_per_row(Count rows) {
  constexpr Count warps = 8, most_blocks = 8192;
  const Count blocks = std::clamp<Count>(divide_up(rows, warps), 1, most_blocks);
  return {.grid = {static_cast<std::uint32_t>(blocks)}, .block = {warp_threads * warps}};
}

// One thread per element.
constexpr Geometry thread_per_element(Count count) {
  constexpr Count threads = 128;
  return {.grid = {static_cast<std::uint32_t>(std::max<Count>(divide_up(count, threads), 1))},
          .block = {threads}};
}

// One block per row, in strides of all blocks.
constexpr Geometry block_per_row(Count rows, Count threads) {
  constexpr Count most_blocks = 1 << 16;
  return {.grid = {static_cast<std::uint32_t>(std::clamp<Count>(rows, 1, most_blocks))},
          .block = {static_cast<std::uint32_t>(threads)}};
}

// Sums over the rows of a matrix: parts of the rows times groups of columns. Each lane has one pack
// of columns, each warp every 8th row of its part. The cut depends only on the shape, and so does
// the order of summation.
struct ColumnSums {
  static constexpr Count warps = 8, most_parts = 256, rows_in_part = 64;
  Count rows, columns, columns_in_group;

  ColumnSums(Count r, Count c, Count pack)
      : rows(r), columns(c), columns_in_group(warp_threads * pack) {}
  Count parts() const { return std::clamp<Count>(divide_up(rows, rows_in_part), 1, most_parts); }
  Count groups() const { return std::max<Count>(divide_up(columns, columns_in_group), 1); }
  Geometry geometry() const {
    return {.grid = {static_cast<std::uint32_t>(groups()), static_cast<std::uint32_t>(parts())},
            .block = {warp_threads, warps}};
  }
  // The geometry of the kernel that adds the parts: one lane per column and sum.
  Geometry adding_geometry(Count sums) const {
    const Count blocks = std::max<Count>(divide_up(columns, warp_threads), 1);
    return {.grid = {static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(sums)},
            .block = {warp_threads, warps}};
  }
};

}  // namespace lockstep::cuda
