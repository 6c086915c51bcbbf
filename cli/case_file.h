// The file of the case that the fuzzer runs, which remains if the case ends this program; and the
// file of a failing case, which does not replace one of an earlier run.
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
  // The file of the failing case.
  const std::string& path() const { return path_; }

 private:
  std::string name_, running_, path_;
};

}  // namespace lockstep
