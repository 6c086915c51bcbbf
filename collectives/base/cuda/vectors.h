// How elements are cut into vectors and requests for memory into sizes: plain arithmetic, tested
// without a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/base/dtype.h"

namespace lockstep::cuda {

// `count` elements as vectors of some elements each, which are aligned to their own size, between
// single elements.
struct VectorCut {
  Count head = 0, vectors = 0, tail = 0;
};

// The cut into vectors of `lanes` elements that aligns all of `places`: where each operand begins,
// in its own elements. If no cut aligns all of them, all elements are single.
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

// The bytes that a request is rounded up to, so that released memory fits later requests: eight
// sizes from a power of two to the next; above 4 KiB at most an eighth too large.
inline Count allocation_size(Count bytes) {
  Count step = 512;
  while (step * 16 <= bytes) step *= 2;
  return std::max<Count>(1, (bytes + step - 1) / step) * step;
}

}  // namespace lockstep::cuda
