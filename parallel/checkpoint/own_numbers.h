// What a rank alone keeps between steps, in a file: a row of numbers for each of TrainingState::own.
#pragma once

#include <algorithm>
#include <string>

#include "collectives/base/slice.h"

namespace lockstep {

// The name of its tensor, by the number of the set of parameters.
std::string own_name(int rank, std::size_t set, const std::string& name);

// Calls block(first, part) for parts of `numbers`, in order, with a bounded number of elements at a time.
template <typename Block>
void in_row(Slice numbers, Block block) {
  constexpr Count at_once = 1 << 18;
  for (Count first = 0; first < numbers.count; first += at_once)
    block(first, numbers.part(first, std::min(at_once, numbers.count - first)));
}

}  // namespace lockstep
