// The grades of a class, from what grade_class() has written: a table for spreadsheets, a page, and
// a summary of each lab.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "labs/gradebook/class_folder.h"

namespace lockstep {

// A student's grade of a lab.
struct BookRow {
  std::string student;
  const Lab* lab = nullptr;
  std::string status;       // see kept_grades.h
  std::string place;        // of the submission that counts, below students/; empty: it has no page
  std::vector<int> earned;  // by obligation of the lab
  // The known mistakes that give exactly what an obligation found, each once.
  std::vector<std::string> causes = {};
  std::optional<double> step_seconds;  // of the plan of a race, with all points
  int points = 0;                      // their sum, without what the course takes for being late
  // With a course only.
  std::string time;
  std::int64_t days_late = 0;

  int before_penalty() const;
};

struct Gradebook {
  std::vector<const Lab*> labs;
  std::vector<std::string> students;
  std::vector<BookRow> rows;  // by student, then lab
  std::vector<std::string> refused;
  bool has_course = false;
};

// `output`: that of grade_class(). Of several submissions of a lab, the course says which counts: the
// last one, or the one with most points after its penalty, and the earliest of these.
Gradebook read_gradebook(const ClassFolder& all, const std::optional<Course>& course,
                         const std::string& output);

// Columns: student, lab, points, out_of, status, and each obligation of these labs; those that a lab
// does not have are empty. With a course, at the end: handed_in, days_late, before_penalty. RFC 4180.
std::string csv_of(const Gradebook& book);
// Of each lab: how many have which points, which obligations most submissions miss, and by which known
// mistakes.
std::string summary_of(const Gradebook& book);
// A page that lies in `output`, with links to the students' pages there.
std::string page_of(const Gradebook& book);

// How many of a lab's submissions have points in a range: none, all, and fifths between them.
struct PointsRange {
  int least = 0, most = 0, count = 0;

  std::string text() const;  // "80 to 99"
};
// The students who take part in a lab's race, the fastest first.
std::vector<const BookRow*> race_of(const Gradebook& book, const Lab& lab);

// Names with how many submissions each has, the most frequent first.
using Frequent = std::vector<std::pair<std::string, int>>;
// "NAME by COUNT, NAME by COUNT".
std::string listed(const Frequent& names);

struct LabSummary {
  int handed_in = 0;
  double mean = 0, median = 0;
  std::vector<PointsRange> ranges;  // from all points down
  Frequent missed;                  // obligations; equals in the lab's order
  Frequent causes;                  // known mistakes; equals by name
};
LabSummary summary_of(const Gradebook& book, const Lab& lab);

}  // namespace lockstep
