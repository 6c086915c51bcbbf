// Proves that a lab's grader enforces what the task states.
#pragma once

#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

struct GradedMutant {
  std::string name;
  std::vector<bool> loses;  // by obligation
  std::vector<bool> names;  // the grade names the mistake, and no other, as the cause of this loss
  bool is_named() const;
};

struct LabCheck {
  std::vector<GradedMutant> mutants;
  int variants = 0;  // how many were graded
  std::vector<std::string> faults;
};

// The skeleton compiles and earns nothing, our solution earns everything, every mutant fails exactly
// its obligations, and the skeleton and the task hold no line of the solution. Each mutant loses an
// obligation, and each obligation is lost by one; what makes a result wrong is also met by the hidden
// cases, which have another secret for each mutant. A grade of a mutant names its cause and never
// another. Variants earn everything. Grades only every `share`-th mutant and variant, beginning
// elsewhere in each lab; plants all. Throws Error (bad_input) if share is below 1.
LabCheck check_lab(const Lab& lab, const std::string& source_folder, int share = 1);

// The obligations, and by which mutants they are lost. "=" follows where the grade names the mistake.
std::string table_of(const Lab& lab, const LabCheck& check);

}  // namespace lockstep
