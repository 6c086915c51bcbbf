// The submissions of a class: CLASS/STUDENT/LAB/ holds the files that a student has handed in for a
// lab. LAB is the lab's number or the name of its folder: 1, or 01_ring_reduce_scatter. With the rules
// of a course it is CLASS/STUDENT/LAB/TIME/: a folder for each time that something was handed in, named
// by whoever collects them, so no student decides when that was: 20261005T215900Z.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "labs/gradebook/course.h"
#include "labs/grader/lab.h"

namespace lockstep {

struct HandedIn {
  std::string student;
  const Lab* lab = nullptr;
  std::string time;    // empty without a course
  std::string folder;  // within the class's: STUDENT/LAB/TIME
};

struct ClassFolder {
  std::string path;  // absolute
  std::vector<std::string> students;
  std::vector<const Lab*> labs;  // those of the course, or that somebody has handed in, by number
  std::vector<HandedIn> handed_in;  // by student, lab and time
  // What is in the folder and cannot be graded, a sentence each.
  std::vector<std::string> refused;
};

// The name of a lab's folder, such as 01_ring_reduce_scatter.
std::string folder_name(const Lab& lab);

// Files next to the students' folders or the labs', and hidden ones, are left alone: a course's
// repository has some. `labs` must outlive the result. Throws Error (bad_input) if the folder cannot
// be read or has no submission.
ClassFolder read_class(const std::string& folder, const std::vector<Lab>& labs,
                       const std::optional<Course>& course);

}  // namespace lockstep
