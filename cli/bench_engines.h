// lockstep bench 3d --profile FILE: a step of each factoring by closed form, in virtual time and in
// training.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/techniques/factorings.h"

namespace lockstep {

struct EngineFlags {
  std::string profile, clock = "wall";
  int steps = 10;

  // Adds --profile, --clock and --steps.
  void add(CLI::App& app);
  // Measures and prints; returns the result file. Throws Error (bad_input) naming the profile's file, a
  // flag, or why no factoring has a plan that the profile can predict.
  std::string compare(const FactoringBenchOptions& options) const;
};

}  // namespace lockstep
