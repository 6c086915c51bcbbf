// Plants one fault in any transport: what happens when a rank fails is a lesson, and must be
// testable.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "collectives/transport/decorator.h"

namespace lockstep {

enum class FaultKind : std::uint8_t {
  throws,  // the rank's program throws
  delays,  // the rank is late by 100 ms
  hangs,   // the rank stays away until the others give up
  kills,   // SIGKILL to the rank's process
  stops,   // SIGSTOP to the rank's process
  exits,   // the rank's process exits with status 3
  leaves,  // the rank's process exits as if all were well
  skips,   // the rank does not make the call
  count,   // the rank announces one element more
  dtype,   // ... another type
  op,      // ... another reduction
  root,    // ... another root
  order,   // ... the next operation
  nan,     // the rank's first number is none, where it has floating-point numbers
};

struct FaultPlan {
  int rank = 0;
  std::int64_t operation = 0;  // number of the collective, or of the message that is no part of one
  FaultKind kind = FaultKind::throws;
};

// Reads "rank=1,op=7,kind=throw"; kinds are throw delay hang kill stop exit leave skip count
// dtype op root order nan. Throws Error (bad_input) that names what is wrong.
FaultPlan parse_fault(std::string_view text);

// `processes` says whether a rank is a process of its own: kill, stop, exit and leave need
// that.
std::unique_ptr<Transport> faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                                  bool processes);

}  // namespace lockstep
