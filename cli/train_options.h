// The options of lockstep train.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/world_flags.h"
#include "parallel/options.h"

namespace lockstep {

struct TrainCommand {
  TrainOptions options;
  WorldFlags world;
  std::string dtype = "f32", reduce_dtype, device = "host";
  std::string json, trace;
  std::vector<std::string> slow_ranks;
  bool no_overlap = false;
};

// Those of its technique.
void add_train_options(CLI::App& app, TrainCommand& command);

}  // namespace lockstep
