// Writes what a student or an instructor gets.
#pragma once

#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

// Throws Error (bad_input) if the folder holds anything, or cannot be made.
void make_empty_folder(const std::string& folder);

// Writes a lab's files and its task into a new or empty folder. Throws Error (bad_input) if it holds
// anything, or cannot be written.
void export_lab(const Lab& lab, const std::string& source_folder, const std::string& folder,
                bool with_solution);
// Writes a repository with all labs, its own CI, a policy and a text for tutors. Throws like
// export_lab().
void export_course(const std::vector<Lab>& labs, const std::string& labs_folder,
                   const std::string& source_folder, const std::string& folder);

}  // namespace lockstep
