// The rules of a course, from its course.json: which labs count, until when they are due, what a late
// submission loses, and which of several counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

// Seconds since 1970 of a time in UTC, 20261005T220000Z or 2026-10-05T22:00:00Z; nothing if it is
// none.
std::optional<std::int64_t> time_of(const std::string& text);

struct CourseLab {
  const Lab* lab = nullptr;
  std::optional<std::int64_t> due;  // without it, no submission is late
};

struct Course {
  std::vector<CourseLab> labs;  // by number
  bool counts_best = false;     // of several submissions; otherwise the last one counts
  int percent_a_day = 0;        // that a late submission loses for each day it has begun
  int most_days = 0;            // with more, it has no points

  // Days begun since the lab was due; 0 if it was in time.
  std::int64_t days_late(const Lab& lab, std::int64_t handed_in) const;
  // What is left of points. What is lost is rounded down.
  int after_penalty(int points, std::int64_t days) const;
};

// `labs` must outlive the result. Throws Error (bad_input) naming what is wrong in the file.
Course read_course(const std::string& path, const std::vector<Lab>& labs);

// The text of a course.json with all labs and no dates.
std::string course_template(const std::vector<Lab>& labs);

}  // namespace lockstep
