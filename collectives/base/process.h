// Other programs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep {

// Starts words[0], looked for on PATH, with the rest as its arguments and nothing to read. What it
// says goes to the file `output`, or where ours goes if that is empty. Returns its process id, for
// waitpid; -1 if it cannot be started.
pid_t start_program(const std::vector<std::string>& words, const std::string& output = "");

}  // namespace lockstep
