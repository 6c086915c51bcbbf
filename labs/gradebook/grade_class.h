// Grades a class: a process for each submission, as many at a time as the machine has cores and
// memory for. What is graded already is kept, so an interrupted run continues where it was.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "labs/gradebook/class_folder.h"
#include "labs/grader/grade.h"

namespace lockstep {

struct ClassOptions {
  std::string source_folder;
  // Absolute. Below it, students/STUDENT/LAB holds a submission's grade.json, results.json (of
  // Gradescope), junit.xml and grade.html, and records/STUDENT/LAB says from what they follow.
  std::string output;
  int hint_level = 0;
  // With it, each student has hidden cases of their own: see GradeOptions.
  std::string secret = {};
  // Is told how many of those to grade have been graded.
  std::function<void(int done, int all)> show = [](int, int) {};
};

struct ClassGrading {
  int graded = 0, kept = 0;
  // Submissions without a grade, since their grading failed, a sentence each.
  std::vector<std::string> failed;
  bool is_interrupted = false;  // by SIGINT or SIGTERM; what was being graded has its grade
};

// Grades each submission whose files, lab, hints, secret or grader differ from those of the grade in
// `output`, and those whose grade was changed or lost. Call it while this process has no other
// children. Throws Error (bad_input) if `output` cannot be written or holds something else.
ClassGrading grade_class(const ClassFolder& all, const ClassOptions& options);

}  // namespace lockstep
