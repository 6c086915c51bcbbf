// Reads what a student hands in.
#pragma once

#include <string>

namespace lockstep {

// The text of a file in the folder of a submission. Neither the file nor the folder may be a link,
// nor, if its path is relative, any folder on the way: whoever writes a submission could lead the
// grader to files that only the grader may read. Throws Error (bad_input) naming the path that is a
// link, missing, not a regular file, or too large.
std::string read_submitted(const std::string& folder, const std::string& name);

}  // namespace lockstep
