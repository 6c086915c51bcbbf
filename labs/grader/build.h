// Compiles a lab's code to a library that ranks load.
#pragma once

#include <string>

#include "labs/grader/lab.h"

namespace lockstep {

// A new empty folder for the user that the compiler and ranks run as, and for nobody else; removed
// with what it holds.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The compiler's result: a library, or its messages.
struct BuiltCode {
  std::string library, errors;
};

// Compiles the files of `submission` and the lab's functions.cc into `work`. The compiler is confined: it
// can read only copies of them, our headers and the system's. Throws Error (bad_input) as
// read_submitted() does.
BuiltCode build_code(const Lab& lab, const std::string& submission,
                     const std::string& source_folder, const WorkFolder& work);

}  // namespace lockstep
