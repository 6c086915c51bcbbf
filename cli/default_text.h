// The text to train on when no --data is given: Lockstep's own source and Markdown, gathered when
// it was built.
#pragma once

#include <string>

namespace lockstep {

// Path of the file. Throws Error (bad_input) when the build's files are not beside the program.
std::string default_text();

}  // namespace lockstep
