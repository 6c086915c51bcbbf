// A new folder for the files of a case, which it removes.
#pragma once

#include <string>

#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

class CaseFolder {
 public:
  // Throws Error (bad_input) if it cannot be made.
  CaseFolder();
  ~CaseFolder();
  CaseFolder(const CaseFolder&) = delete;
  FuzzFiles files() const { return {path_}; }

 private:
  std::string path_;
};

}  // namespace lockstep
