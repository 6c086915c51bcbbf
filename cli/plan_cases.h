// The parts of `lockstep plan` that predict seconds.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace lockstep {

// Whether `lockstep plan WORD` is a command of its own, not a technique or a plan's file.
inline bool is_plan_command(std::string_view word) {
  return word == "validate" || word == "search";
}
// Adds --batch, validate and search.
void add_predicted_seconds(CLI::App& plan, Command& chosen);
void add_plan_search(CLI::App& plan, Command& chosen);

}  // namespace lockstep
