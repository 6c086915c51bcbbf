// The command-line options of lockstep train and lockstep plan, made from the descriptions in
// parallel/plan/options.h. A plan file can also set them.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/plan/options.h"

namespace lockstep {

struct PlanOptions {
  TrainOptions options;
  std::string plan_file;
  bool file_has_model = false;                // the plan file
  std::map<std::string, CLI::Option*> given;  // by Option::flag; counts whether it was given
};

// Adds the options of its technique, its own first, and --plan. An option of another technique is refused with a
// message that names the technique.
void add_plan_options(CLI::App& app, PlanOptions& command);

// Throws Error (bad_input) naming an option that was given and changes nothing. `options` include all
// defaults that depend on other options.
void refuse_without_effect(const PlanOptions& command, TrainOptions options);

// Adds these training options, named without dashes, to another command. `options` must outlive the
// app.
void add_train_options(CLI::App& app, TrainOptions& options, std::vector<std::string_view> flags);

// Sets the options that the command line leaves open from the plan file, if there is one. `ranks`
// is the value of --ranks, if it was given. Returns the plan's ranks, or nothing
// without a file. Throws Error (bad_input) naming flag and file if they contradict each other.
std::optional<int> take_plan_file(PlanOptions& command, std::optional<int> ranks);

// If no model is given and --init is a folder, takes the folder's model.
void take_model_of_init(PlanOptions& command);

// The command line with the technique of the plan file inserted: "train --plan FILE" and "plan
// FILE" do not name it.
std::vector<std::string> with_technique_of_plan(std::vector<std::string> words);

}  // namespace lockstep
