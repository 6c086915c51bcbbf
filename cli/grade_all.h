// lockstep grade --all: the gradebook of a class.
#pragma once

#include <string>

namespace lockstep {

struct GradeAllOptions {
  std::string class_folder, csv;
  std::string course;  // its course.json; empty: no rules
  std::string output;  // empty: named like the CSV file
  int hints = 0;
  std::string secret_file;
};

// Returns the exit status: 0 if every submission has a grade, whatever its points.
int grade_all(const GradeAllOptions& options);

// The text of a secret's file. Throws Error (bad_input) if the file lies in our sources or in the
// folder of submissions: anyone who can read it knows the hidden cases.
std::string read_secret(const std::string& file, const std::string& submissions);

}  // namespace lockstep
