// Runs a case and compares it with one rank in f64, and with its predictions.
#pragma once

#include <optional>
#include <string>

#include "collectives/transport/launch.h"
#include "parallel/fuzz/comparison.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

// A new folder for the files of a case, which it removes.
class CaseFolder {
 public:
  CaseFolder();
  ~CaseFolder();
  CaseFolder(const CaseFolder&) = delete;
  FuzzFiles files() const { return {path_}; }

 private:
  std::string path_;
};

struct CaseOptions {
  double timeout_s = 60;
  double longest_delay_s = 50e-6;  // of messages; 0: none
  std::optional<FaultPlan> fault;  // for tests: planted into the plan
};

// Under mpirun every rank calls it, and rank 0 gets all ranks' results. `files` must hold the case's
// files and, if it resumes, the checkpoint of the plan before it.
CaseCheck check_case(const FuzzCase& fuzz_case, const FuzzFiles& files, const CaseOptions& options);

// Takes the first step with the plan before, on threads, and writes its checkpoint.
void write_checkpoint(const FuzzCase& fuzz_case, const FuzzFiles& files,
                      const CaseOptions& options);

// Only the tags of its tensors (parallel/tags), on every rank, without data and without a reference.
CaseCheck check_tags_of_case(const FuzzCase& fuzz_case);

// All of the above in a folder of its own, which it removes, on threads. What is thrown is a
// difference.
CaseCheck check_case_on_threads(const FuzzCase& fuzz_case, const CaseOptions& options);

}  // namespace lockstep
