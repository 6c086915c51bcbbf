// Makes a student's code part of this program, as algorithm "lab" and schedules "lab-...".
#pragma once

#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

// Compiles the folder as the lab whose files it holds. It then runs in this process, with all of its
// rights. Call it before tables of algorithms and schedules are used. Throws Error (bad_input) if
// the folder's files match no lab, or its code does not compile.
void load_lab_code(const std::vector<Lab>& labs, const std::string& folder,
                   const std::string& source_folder);

}  // namespace lockstep
