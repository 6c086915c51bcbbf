// Schedules as text: PyTorch's, a line for every rank, its actions separated by commas.
// "0F0,0F1,,0B0" is stage 0 going forward with micro-batches 0 and 1, then back with 0; what is
// empty is idle. Two actions that form a block are "(0F4;7B1)OVERLAP_F_B".
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline/schedule.h"

namespace lockstep {

std::string csv_of(const Schedule& schedule);

// Reads what csv_of() or PyTorch wrote; its stages and micro-batches are the numbers that occur.
// Sends and receives are left out: they follow from the actions (see communication.h). `name` is
// what errors call the text. Throws Error (bad_input) naming line and cell of what is not an
// action.
Schedule schedule_from_csv(std::string_view text, std::string_view name);

}  // namespace lockstep
