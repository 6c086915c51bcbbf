// A bug hunt: a copy of Lockstep's sources with one bug that a real system has had. The loss looks
// fine; the student finds the bug with gradients, norms, counters and traces, and names its line.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Hunt {
  int number = 0;
  std::string title, story;
  std::vector<std::string> commands;  // the first ones to run in the copy
  std::vector<std::string> hints;     // three, from a tool to nearly the place
  std::string bug;                    // the repository and the number of its issue
  std::string file;                   // the file with the bug
  std::string right, wrong;           // the text without and with the bug
  std::string explanation;
};

// Returns the hunts in hunts.json in `folder`, by number. Throws Error (bad_input) naming what
// cannot be read.
std::vector<Hunt> read_hunts(const std::string& folder);
// Throws Error (bad_input) listing the numbers there are.
const Hunt& find_hunt(const std::vector<Hunt>& hunts, int number);

// Copies the sources into a new or empty folder, and plants the bug. Throws Error (bad_input) if the
// folder holds anything or cannot be written.
void export_hunt(const Hunt& hunt, const std::string& source_folder, const std::string& folder);

// The first and the last line that the bug has changed, in a copy.
struct BugLines {
  int first = 0, last = 0;
};
BugLines bug_lines(const Hunt& hunt, const std::string& source_folder);

}  // namespace lockstep
