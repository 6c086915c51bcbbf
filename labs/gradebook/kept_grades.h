// Grades in the output folder of a class. A grade counts only if its record says from what it
// follows, and its files are as they were written.
#pragma once

#include <string>

#include "collectives/base/checksum.h"
#include "labs/gradebook/class_folder.h"
#include "labs/grader/grade.h"

namespace lockstep {

// A checksum of texts, in this order.
class Key {
 public:
  Key& add(const std::string& text);
  std::string text() const;

 private:
  Checksum sum_;
};

// Where a submission's grade lies below the output, in links and paths: STUDENT/LAB, or
// STUDENT/LAB/TIME.
std::string place_of(const HandedIn& submission);
// The folder of a submission's grade.
std::string grade_folder(const std::string& output, const std::string& place);

// Whether the grade is there, with this key and unchanged.
bool is_kept(const std::string& output, const std::string& place, const std::string& key);

// What has become of a submission, as the gradebook says it.
inline constexpr const char *status_graded = "graded", *status_not_compiling = "does not compile",
                            *status_unreadable = "unreadable", *status_missing = "missing",
                            *status_failed = "not graded";
// The status of a grade in the output.
std::string kept_status(const std::string& output, const std::string& place);

// Removes the record, so that the grade no longer counts.
void forget_grade(const std::string& output, const std::string& place);
// Writes the files of a grade, and then its record.
void write_grade(const std::string& output, const std::string& place, const Grade& grade,
                 const std::string& key, const std::string& status);

}  // namespace lockstep
