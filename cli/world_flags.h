// The flags of every command that starts a world of ranks.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "collectives/transport/launch/launch.h"

namespace lockstep {

constexpr const char* trace_help =
    "write a trace for ui.perfetto.dev to this file, also if the run fails; then under mpirun one "
    "file for each rank";

struct WorldFlags {
  LaunchOptions launch;
  std::string clock = "wall", link, fault;
  CLI::App* app = nullptr;  // to which they were added

  // Adds --ranks, --timeout, --clock, --link, --fault and --flight.
  void add(CLI::App& command);
  // Sets `launch` from the flags. Throws Error (bad_input) naming the flag.
  void read();
  // What this process is about to do, for LaunchOptions: the command, its flags, and the numeric
  // environment. Without the names of output files, --ranks, which the launcher sets, and flags that
  // the caller has described.
  Claims claims(const std::function<bool(const CLI::Option&)>& is_described = {}) const;
  // How many ranks --ranks asks for, if it was given.
  std::optional<int> given_ranks() const;
};

}  // namespace lockstep
