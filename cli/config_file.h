// --config FILE: options from a file in CLI11's format, one section per command ([train.ddp]). The
// command line overrides it.
#pragma once

#include <CLI/App.hpp>

namespace lockstep {

// Refuses what the command line would refuse, keys of other commands, keys given twice, and several
// values for an option that takes one. Only regular files of at most 1 MiB are read.
void add_config_file(CLI::App& program);

}  // namespace lockstep
