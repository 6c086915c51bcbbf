// What lies beside the program and is not compiled into it.
#pragma once

#include <string>

namespace lockstep {

// The path of the text to train on when none is named: the project's own source and Markdown,
// gathered by the build. Throws Error (bad_input) when it is gone.
std::string default_text();
// The folder of the Python programs that draw; throws as default_text().
std::string plots_folder();

}  // namespace lockstep
