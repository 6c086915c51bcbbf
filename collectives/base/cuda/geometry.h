// How many threads run a kernel. Plain arithmetic, so it can be tested without a device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/base/dtype.h"

namespace lockstep::cuda {

// Blocks in the grid, threads in a block, and bytes of dynamic shared memory of a block.
struct Geometry {
  struct Size {
    std::uint32_t x = 1, y = 1, z = 1;
  };
  Size grid, block;
  Count shared_bytes = 0;
};

inline constexpr Count warp_threads = 32, most_block_threads = 1024, most_grid_x = 0x7fffffff,
                       most_grid_y = 65535;

constexpr Count divide_up(Count count, Count by) { return (count + by - 1) / by; }

// A one-dimensional grid whose threads cover `count` elements, `each` per step, in strides of the
// whole grid. At least one block, so that it can be launched, and at most a few times as many as
// fill a device.
constexpr Geometry over_elements(Count count, Count each = 1) {
  constexpr Count threads = 256, most_blocks = 8192;
  const Count blocks = std::clamp<Count>(divide_up(count, each * threads), 1, most_blocks);
  return {.grid = {static_cast<std::uint32_t>(blocks)}, .block = {threads}};
}

}  // namespace lockstep::cuda
