// Copies of Lockstep's sources in which something is different.
#pragma once

#include <string>

#include "labs/grader/lab.h"

namespace lockstep {

// Copies the sources into a new or empty folder, without what a build has made, and without files
// that reveal solutions and bugs; `with_labs` keeps those by which labs are graded. `./lockstep` in the
// copy builds and runs it. Throws Error (bad_input) if the folder holds anything or cannot be written.
void copy_sources(const std::string& source_folder, const std::string& folder,
                  bool with_labs = false);

// The same, with a submission's code instead of ours. Throws Error (bad_input) if the submission
// lacks a file or the frame of the skeleton.
void copy_with_submission(const Lab& lab, const std::string& submission,
                          const std::string& source_folder, const std::string& folder);

}  // namespace lockstep
