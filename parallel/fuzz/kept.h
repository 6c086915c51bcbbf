// Compressed gradients (`--exchange`): as files, and what was left out of them so far and is added to later ones
// (error feedback).
#pragma once

#include "parallel/fuzz/case_run.h"

namespace lockstep {

// The sum over all ranks, for each element of the model, on every rank; zeros where nothing is kept. All ranks
// call it after a step.
Values kept_by_all(Communicator& world, TrainingRank& rank, const Plan& plan,
                   const std::vector<Parameter>& whole);

// A file of f64. read_values() throws Error (bad_input) unless it has that many.
void write_values(const std::string& path, const Values& values);
Values read_values(const std::string& path, std::size_t count);

}  // namespace lockstep
