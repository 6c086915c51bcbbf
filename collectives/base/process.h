// Other programs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep {

// Starts words[0], looked up on PATH, with the other words as arguments and an empty standard
// input. Its output goes to the file `output` or, if that is empty, to ours. Returns the process id
// for waitpid, or -1 if it cannot be started.
pid_t start_program(const std::vector<std::string>& words, const std::string& output = "");

}  // namespace lockstep
