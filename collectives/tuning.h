// Which algorithm was measured to be the fastest, for those who let us choose (`auto`).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// From that size on, up to the next choice of the same operation, transport and number of ranks.
struct TunedChoice {
  Operation operation = Operation::all_reduce;
  std::string transport;
  int ranks = 0;
  Count from_bytes = 0;
  std::string algorithm;
};

struct Tuning {
  std::vector<TunedChoice> choices;

  // "" where nothing was measured for so many ranks.
  std::string_view find(Operation operation, const Communicator& comm, Count bytes) const;
};

}  // namespace lockstep
