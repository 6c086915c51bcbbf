// --config FILE: options from a file in CLI11's format, a section a command ([train.ddp]); the
// command line wins over it.
#pragma once

#include <CLI/App.hpp>

namespace lockstep {

// Unknown keys are errors; only regular files of at most 1 MiB are read.
void add_config_file(CLI::App& program);

}  // namespace lockstep
