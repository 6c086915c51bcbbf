// How elements are cut into vectors, and memory requests rounded. Plain arithmetic, tested without
// a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/base/dtype.h"

namespace lockstep::cuda {

// `count` elements: `head` single ones, `vectors` aligned vectors, `tail` single ones.
struct VectorCut {
  Count head = 0, vectors = 0, tail = 0;
};

// The cut into vectors of `lanes` elements that aligns all operands. `places` are their starts,
// counted in elements. If no cut aligns all of them, all elements are single.
inline VectorCut vector_cut(Count count, int lanes, std::span<const std::uintptr_t> places) {
  const auto phase = [&](std::uintptr_t place) {
    return static_cast<Count>(place % static_cast<unsigned>(lanes));
  };
  const Count first = phase(places[0]);
  const bool in_phase =
      std::ranges::all_of(places, [&](std::uintptr_t place) { return phase(place) == first; });
  VectorCut cut;
  cut.head = in_phase ? std::min(count, (lanes - first) % lanes) : count;
  cut.vectors = (count - cut.head) / lanes;
  cut.tail = count - cut.head - cut.vectors * lanes;
  return cut;
}

// Rounds a request up so that released memory fits later requests: eight sizes per power of two.
// Above 4 KiB a block is at most an eighth too large.
inline Count allocation_size(Count bytes) {
  Count step = 512;
  while (step * 16 <= bytes) step *= 2;
  return std::max<Count>(1, (bytes + step - 1) / step) * step;
}

}  // namespace lockstep::cuda
