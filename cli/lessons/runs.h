// Runs a lesson's commands in a folder of their own.
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

}  // namespace lockstep
