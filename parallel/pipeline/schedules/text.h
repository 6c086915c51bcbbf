// Schedules as text, in PyTorch's format: one line per rank, its actions separated by commas.
// "0F0,0F1,,0B0" runs stage 0 forward for micro-batches 0 and 1, then backward for 0; an empty cell
// is idle. Two actions that form a block are "(0F4;7B1)OVERLAP_F_B". Collectives have no
// micro-batch: "0UNSHARD", "0RESHARD", "0REDUCE_GRAD".
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// The actions alone. PyTorch loads it (as compute_only) if the schedule has no collectives; with
// collectives, PyTorch also needs messages and waits: see csv_of() of program/program.h.
std::string csv_of(const Schedule& schedule);

// Reads the text of csv_of() or PyTorch; the numbers in it determine how many stages and
// micro-batches there are. Sends, receives and waits ("0WAIT_SEND_F1") are skipped, because they
// follow from the actions. `name` identifies the text in errors. Throws Error (bad_input) naming
// the line and the cell that is not an action.
Schedule schedule_from_csv(std::string_view text, std::string_view name);

// The same for a file. Passes of a stage that it numbers from 1 up to the number of micro-batches
// are renumbered from 0: PyTorch's own order of 1F1B numbers passes this way on its last rank.
Schedule read_schedule(const std::string& path);

}  // namespace lockstep
