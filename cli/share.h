// Finds the files installed with the program.
#pragma once

#include <string>

namespace lockstep {

// The path of the default training text: the project's own source and Markdown, collected by the
// build. Throws Error (bad_input) if it is missing.
std::string default_text();
// The folder of the Python programs that plot. Throws as default_text().
std::string plots_folder();

}  // namespace lockstep
