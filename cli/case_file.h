// The file of the case that the fuzzer runs, which stays if the case ends this program; and the file of
// a case that failed, which replaces none of an earlier run.
#pragma once

#include <string>

#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

class CaseFile {
 public:
  // `name`: without an ending.
  CaseFile(const std::string& name, const FuzzCase& fuzz_case);
  ~CaseFile();
  CaseFile(const CaseFile&) = delete;
  void keep(const FuzzCase& failing);
  // Of the case that failed.
  const std::string& path() const { return path_; }

 private:
  std::string name_, running_, path_;
};

}  // namespace lockstep
