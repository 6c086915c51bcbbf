// Finds and runs other programs.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The path of a program on PATH; empty if there is none.
std::string find_program(const std::string& name);
// A Python that can import this module; empty if there is none.
std::string find_python(const std::string& module = "matplotlib");

// Runs words[0] with the rest as its arguments and waits for it. Its output goes to the file
// `output`, or to ours if that is empty. Returns its exit status; 128 + the signal that killed it,
// as a shell does; 127 if it cannot be started.
int run_program(const std::vector<std::string>& words, const std::string& output = "");

// Runs a Python program of the plots folder. Throws Error (bad_input) if no Python has matplotlib.
int run_plots(const std::string& script, const std::vector<std::string>& arguments,
              const std::string& output = "");

}  // namespace lockstep
