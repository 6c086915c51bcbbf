// Other programs: finds them, runs them.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Where a program lies on PATH; empty if nowhere.
std::string find_program(const std::string& name);
// The Python that can draw: one that has matplotlib; empty if there is none.
std::string find_python();

// Runs words[0] with the rest as its arguments and waits for it. What it says goes to the file
// `output`, or where ours goes if that is empty. Returns its exit status; 128 + the signal that
// ended it, as a shell does; 127 if it cannot be started.
int run_program(const std::vector<std::string>& words, const std::string& output = "");

// Runs a Python program of the plots folder. Throws Error (bad_input) where no Python can draw.
int run_plots(const std::string& script, const std::vector<std::string>& arguments,
              const std::string& output = "");

}  // namespace lockstep
