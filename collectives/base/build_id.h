// Identifies this build of the program.
#pragma once

#include <string>

namespace lockstep {

// The linker's hash of the program's contents, in hexadecimal; "none" if there is none.
std::string build_id();

}  // namespace lockstep
