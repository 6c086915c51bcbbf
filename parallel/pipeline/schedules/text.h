// Schedules as text: PyTorch's, a line for every rank, its actions separated by commas.
// "0F0,0F1,,0B0" runs stage 0 forward for micro-batches 0 and 1, then backward for 0; an empty cell
// is idle. Two actions that form a block are "(0F4;7B1)OVERLAP_F_B". Collectives have no
// micro-batch: "0UNSHARD", "0RESHARD", "0REDUCE_GRAD".
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

std::string csv_of(const Schedule& schedule);

// Reads the text of csv_of() or PyTorch; the numbers in it determine how many stages and
// micro-batches there are. Sends and receives are skipped, because they follow from the actions
// (see simulator/communication.h). `name` identifies the text in errors. Throws Error (bad_input)
// naming the line and the cell that is not an action.
Schedule schedule_from_csv(std::string_view text, std::string_view name);

}  // namespace lockstep
