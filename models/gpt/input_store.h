// Where inputs of blocks lie until backward computes the blocks again, if the ranks that split the
// layers, which all have the same input, share the memory for it.
#pragma once

#include <optional>

#include "collectives/base/slice.h"

namespace lockstep {

class InputStore {
 public:
  virtual ~InputStore() = default;
  // Keeps an input, and returns its number.
  virtual int keep(Slice input) = 0;
  // Fills `input` again, and forgets the number. `next`: the number that is needed next, if known.
  virtual void bring_back(Slice input, int number, std::optional<int> next) = 0;
};

}  // namespace lockstep
