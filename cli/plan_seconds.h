// lockstep plan TECHNIQUE --profile FILE: the seconds of a step on the machine or the GPUs of a profile.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/calibrate/predicted_step.h"

namespace lockstep {

// The flag --clock of commands that take a machine's profile.
CLI::Option* add_clock_of_profile(CLI::App& app, std::string& clock);

struct SecondsFlags {
  std::string profile, clock = "wall", link, transport = "threads";
  std::string gpu;  // of the profile, once it was read

  // Adds --profile, --clock, --link and --transport.
  void add(CLI::App& app);
  // Nothing without a profile. Throws Error (bad_input) naming a flag or the profile's file.
  std::optional<PredictedStep> predicted(const Plan& plan);
  // Prints the prediction, and returns it as JSON.
  nlohmann::ordered_json show(const PredictedStep& step) const;

 private:
  CLI::App* app_ = nullptr;
};

}  // namespace lockstep
