// The algorithms measured as fastest, for the algorithm `auto`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// Applies from that size up to the next choice for the same operation, transport and number of
// ranks.
struct TunedChoice {
  Operation operation = Operation::all_reduce;
  std::string transport;
  int ranks = 0;
  Count from_bytes = 0;
  std::string algorithm;
};

struct Tuning {
  std::vector<TunedChoice> choices;

  // "" if nothing was measured for this number of ranks.
  std::string_view find(Operation operation, const Communicator& comm, Count bytes) const;
};

}  // namespace lockstep
