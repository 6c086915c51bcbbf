// Grades a submission: what it earns for each obligation of its lab, and why not more. Times never
// count, so the same submission always gets the same grade.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "labs/grader/build.h"
#include "labs/grader/judge.h"
#include "labs/grader/lab.h"
#include "labs/grader/race.h"

namespace lockstep {

struct GradeOptions {
  std::string source_folder;
  int hint_level = 0;  // 0 to 3: how much the grade says about failed obligations
  // The seed of the hidden cases. Only the instructor knows it.
  std::string secret = {};
  // With a name, the hidden cases also follow from it: every student has others, always the same.
  std::string student = {};
  // The library of our own solution, if it is compiled already: see build_reference().
  std::string reference = {};
  // The library of the submission, if it is compiled already.
  std::string compiled = {};
  // Those that may be causes, if they are shared with other grades.
  KnownMistakes* mistakes = nullptr;
};

struct EarnedPoints {
  std::string obligation;
  int points = 0, earned = 0;
  std::string wrong;  // empty: met
  // The known mistakes that give exactly this; `wrong` names them, too.
  std::vector<std::string> causes = {};
  std::vector<std::string> hints;
};

struct Grade {
  int lab = 0;
  std::string name;
  std::vector<EarnedPoints> obligations;
  std::string compiler_errors;
  std::string traced;
  std::vector<TraceRow> trace;
  std::optional<RaceTime> race = {};  // only with all points

  int points() const;
  int earned() const;
};

// Compiles our own solution in the same way as a submission, into `work`. Returns the library.
std::string build_reference(const Lab& lab, const std::string& source_folder,
                            const WorkFolder& work);

// The grade of a submission that cannot be read, for the reason that `what` says.
Grade grade_without_points(const Lab& lab, const std::string& what);

// Throws Error (bad_input) as read_submitted() does.
Grade grade(const Lab& lab, const std::string& submission, const GradeOptions& options);

}  // namespace lockstep
