// The options of a plan on the command line, for lockstep train and lockstep plan. They come from
// the descriptions in parallel/options.h; a plan file can give them, too.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "parallel/options.h"

namespace lockstep {

struct PlanOptions {
  TrainOptions options;
  std::string plan_file;
  std::map<std::string, CLI::Option*> given;  // by Option::flag; whether it was given
};

// Those of its technique, and --plan. Options of other techniques are there to say whose they are.
void add_plan_options(CLI::App& app, PlanOptions& command);

// Takes from the plan file, if there is one, what the command line does not say; `ranks` is its
// --ranks, or null where that was not given. Returns the plan's ranks, or nothing without a file.
// Throws Error (bad_input) naming flag and file where they contradict each other.
std::optional<int> take_plan_file(PlanOptions& command, const int* ranks);

// The command line with the technique that a plan file names: "train --plan FILE" and "plan FILE"
// say none.
std::vector<std::string> with_technique_of_plan(std::vector<std::string> words);

}  // namespace lockstep
