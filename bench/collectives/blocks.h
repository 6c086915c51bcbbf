// Data that are not contiguous: blocks of elements at equal distances, as a column of a matrix is.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/slice.h"

namespace lockstep {

// `length` elements, then the next block begins `stride` elements after this one. Both 0:
// contiguous data.
struct Blocks {
  Count length = 0, stride = 0;

  bool are_apart() const { return length > 0; }
  std::string name() const;  // in results: "2of8"
  // Elements from the first to the end of the last of `count`.
  Count spread(Count count) const;
};

// Reads "2:8": blocks of 2 elements, 8 elements apart. Throws Error (bad_input) naming --blocks.
Blocks blocks_from(std::string_view text);

// In the host's memory: `packed` = the blocks of `apart`, and the other way. `apart` has
// blocks.spread(packed.count) elements.
void pack_blocks(Slice packed, Slice apart, const Blocks& blocks);
void unpack_blocks(Slice apart, Slice packed, const Blocks& blocks);
// Sets every byte of `apart`, so that one outside of blocks that is overwritten can be told.
void mark_gaps(Slice apart);
// The elements between blocks that are not as marked. `count` elements are in blocks.
Count spoiled_gaps(Slice apart, Count count, const Blocks& blocks);

}  // namespace lockstep
