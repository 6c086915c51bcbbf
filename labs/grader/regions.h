// Cuts a lab's files from the shipped sources, by lines that are comments there:
//
//   // lab: NAME       begins a region
//   // lab: solution   what follows is the solution, which a skeleton lacks
//   // lab: given      what follows is given again
//   // lab: end        ends the region
//
// A lab's instead.txt has lines `REGION NUMBER CODE`: the skeleton has CODE in place of that solution
// of the region, counted from 1.
#pragma once

#include <string>

#include "labs/grader/lab.h"

namespace lockstep {

// The text of a file of a submission; without the solution, "Your code." stands in its place.
// `source_folder`: the root of the sources. Throws Error (bad_input) if a region is missing.
std::string cut(const LabFile& file, const std::string& source_folder, bool with_solution);

// Returns the shipped source with `code` instead of the last region, and without the other regions.
std::string replaced(const LabFile& file, const std::string& source_folder,
                     const std::string& code);

// Returns the lines of the solution that are long enough to be recognized, without indentation.
std::vector<std::string> solution_lines(const LabFile& file, const std::string& source_folder);

}  // namespace lockstep
