// The flags for the times of a simulated schedule's passes and messages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "parallel/pipeline/schedules/pass_times.h"

namespace lockstep {

struct PassTimeFlags {
  std::string forward = "1", input_gradient = "1", weight_gradient = "1", hop = "0";

  // Adds --forward, --input-gradient, --weight-gradient and --hop.
  void add(CLI::App& app);
  // Throws Error (bad_input) for a value that is not a number.
  PassTimes times() const;
};

// "forward 1, input gradient 1, weight gradient 1; hop 0"
std::string text_of(const PassTimes& times);

}  // namespace lockstep
