// Plants one fault in any transport, to show and test what happens when a rank fails.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/transport/decorators/decorator.h"

namespace lockstep {

enum class FaultKind : std::uint8_t {
  throws,  // the rank's program throws
  delays,  // the rank is 100 ms late
  hangs,   // the rank does nothing until the others give up
  kills,   // SIGKILL to the rank's process
  stops,   // SIGSTOP to the rank's process
  exits,   // the rank's process calls exit(3)
  leaves,  // the rank's process calls exit(0)
  skips,   // the rank does not make the call
  count,   // the rank announces one element too many
  dtype,   // ... a different type
  op,      // ... a different reduction
  root,    // ... a different root
  order,   // ... the next operation
  nan,     // the rank's first element is NaN, if its type is floating-point
};

struct FaultPlan {
  int rank = 0;
  std::int64_t operation = 0;  // number of the collective, or of a message outside any
  FaultKind kind = FaultKind::throws;
};

// Reads "rank=1,op=7,kind=throw"; kinds are throw delay hang kill stop exit leave skip count
// dtype op root order nan. Throws Error (bad_input) that names the mistake.
FaultPlan parse_fault(std::string_view text);

// The progress of a fault plan. Shared by all groups of the rank.
struct FaultRecord {
  std::atomic<std::int64_t> operations = 0;  // made by the rank so far
  std::atomic<bool> poisoned = false;        // data have got a NaN
  std::atomic<bool> alone = false;           // the fault occurred in a group of one rank, where it
                                             // has no effect
};

// `processes`: whether each rank is a process. kill, stop, exit and leave require that.
std::unique_ptr<Transport> faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                                  bool processes, const std::shared_ptr<FaultRecord>& record);

// Throws Error (bad_input) if the program of `rank` has ended without the fault.
void require_struck(const FaultPlan& plan, const FaultRecord& record, int rank);

}  // namespace lockstep
