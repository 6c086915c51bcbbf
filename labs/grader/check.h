// Proves of a lab that its grader asks for what it says.
#pragma once

#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

struct LabCheck {
  int graded_mutants = 0;
  std::vector<std::string> faults;
};

// The skeleton compiles and earns nothing, our solution earns everything, every mutant fails exactly
// its obligations, and the skeleton and the task hold no line of the solution. Grades only every
// `share`-th mutant, beginning elsewhere in each lab; plants all. Throws Error (bad_input) if share is
// below 1.
LabCheck check_lab(const Lab& lab, const std::string& source_folder, int share = 1);

}  // namespace lockstep
