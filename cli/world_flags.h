// The flags of every command that starts a world of ranks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "collectives/transport/launch.h"

namespace lockstep {

struct WorldFlags {
  LaunchOptions launch;
  std::string clock = "wall", link, fault;

  // Adds --ranks, --timeout, --clock, --link, --fault and --flight.
  void add(CLI::App& app);
  // Sets `launch` from the flags. Throws Error (bad_input) naming the flag.
  void read();
};

}  // namespace lockstep
