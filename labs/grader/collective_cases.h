// The collectives of labs, and the cases in which they are judged.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "labs/process/wire.h"

namespace lockstep {

struct CollectiveCase {
  int ranks;
  Count count;
  ReduceOp op = ReduceOp::sum;
};

// An operation, and the algorithm that a lab asks for.
struct Collective {
  LabJob::Kind kind;
  Traffic (*traffic)(const Problem&, int rank);
  Count (*scratch)(const Problem&, int rank);
  bool reduces, has_equal_chunks;
};

// Throws Error (bad_input) if no lab has this operation.
Collective collective_of(const std::string& operation);

// Equal chunks; chunks that differ, or are empty, and one rank; what nobody knows before.
std::vector<CollectiveCase> usual_cases(const Collective& of);
std::vector<CollectiveCase> uneven_cases(const Collective& of);
std::vector<CollectiveCase> hidden_cases(const Collective& of, std::uint64_t seed);

}  // namespace lockstep
