// An autograder for Gradescope, which grades each submission in a container of its own.
#pragma once

#include <string>

namespace lockstep {

// Writes a zip file with the sources and what Gradescope needs to build and call them, for all labs.
// Throws Error (bad_input) if it cannot be written, or there is no python3.
void write_autograder(const std::string& labs_folder, const std::string& source_folder,
                      const std::string& path);

}  // namespace lockstep
