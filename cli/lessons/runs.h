// Runs a lesson's commands in a folder of their own; and the lines of their output that it shows.
#pragma once

#include <string>

namespace lockstep {

class LessonRuns {
 public:
  // Creates the folder OUTPUT/NAME with a ./lockstep that is this program. Throws Error
  // (bad_input).
  LessonRuns(const std::string& output, const std::string& name);

  const std::string& folder() const { return folder_; }
  // The commands' output goes to ours or, with `output`, to this file. Throws Error (wrong_result)
  // if one fails.
  void run(const std::string& commands, const std::string& output = "") const;

 private:
  std::string folder_;
};

struct ShownOutput {
  std::string text;  // whole lines
  int hidden = 0;    // number of omitted lines
};
// The lines of `output` with a match of the regular expression `show`; all if it is empty.
ShownOutput shown_output(const std::string& output, const std::string& show);

}  // namespace lockstep
