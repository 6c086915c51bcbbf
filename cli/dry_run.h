// lockstep train ... --device none: runs one rank of a plan without data and without the others, and
// compares what it would send and hold with the closed forms.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/train_options.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

struct DryRunFlags {
  int rank = 0;

  // Adds --rank. Call it after all flags of the run have been added.
  void add(CLI::App& app);
  // Throws Error (bad_input) naming a flag that has no effect with this device.
  void check(const PlanOptions& plan, const std::string& device) const;

 private:
  CLI::App* app_ = nullptr;
};

// Prints the table, and writes the result to the file `json` unless that is empty. Returns the exit
// status. Throws Error (wrong_result) if a count differs from its closed form.
int dry_run_alone(PlanOptions& plan, const LaunchOptions& world, int rank, const std::string& json);

}  // namespace lockstep
