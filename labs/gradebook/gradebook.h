// The grades of a class, from what grade_class() has written: a table for spreadsheets, a page, and
// a summary of each lab.
#pragma once

#include <string>
#include <vector>

#include "labs/gradebook/class_folder.h"

namespace lockstep {

// A student's grade of a lab that somebody has handed in.
struct BookRow {
  std::string student;
  const Lab* lab = nullptr;
  std::string status;  // see kept_grades.h
  bool has_page = false;
  std::vector<int> earned;  // by obligation of the lab

  int points() const;
};

struct Gradebook {
  std::vector<const Lab*> labs;
  std::vector<std::string> students;
  std::vector<BookRow> rows;  // by student, then lab
  std::vector<std::string> refused;
};

// `output`: that of grade_class().
Gradebook read_gradebook(const ClassFolder& all, const std::string& output);

// Columns: student, lab, points, out_of, status, and each obligation of these labs; those that a lab
// does not have are empty. RFC 4180.
std::string csv_of(const Gradebook& book);
// Of each lab: how many have which points, and which obligations most submissions miss.
std::string summary_of(const Gradebook& book);
// A page that lies in `output`, with links to the students' pages there.
std::string page_of(const Gradebook& book);

// How many of a lab's submissions have points in a range: none, all, and fifths between them.
struct PointsRange {
  int least = 0, most = 0, count = 0;

  std::string text() const;  // "80 to 99"
};
struct LabSummary {
  int handed_in = 0;
  double mean = 0, median = 0;
  std::vector<PointsRange> ranges;  // from all points down
  // Obligations that somebody misses, by how many do; equals in the lab's order.
  std::vector<std::pair<std::string, int>> missed;
};
LabSummary summary_of(const Gradebook& book, const Lab& lab);

}  // namespace lockstep
