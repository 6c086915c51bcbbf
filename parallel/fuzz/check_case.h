// Runs the plans of a case one after another, and compares each with one rank, and with its
// predictions.
#pragma once

#include <optional>

#include "collectives/transport/launch/launch.h"
#include "parallel/fuzz/case_folder.h"
#include "parallel/fuzz/comparison.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

struct CaseOptions {
  double timeout_s = 60;
  double longest_delay_s = 50e-6;  // of messages; 0: none
  std::optional<FaultPlan> fault;  // for tests: planted into the last plan
};

// Checks one plan. Under mpirun every rank calls it, and rank 0 gets all ranks' results. `files` must
// hold the case's files and, if the plan resumes, what the plans before it have left.
CaseCheck check_plan(const FuzzCase& fuzz_case, std::size_t plan, const FuzzFiles& files,
                     const CaseOptions& options);
// Checks the plans before the last one, on threads, up to the first that fails.
CaseCheck check_plans_before(const FuzzCase& fuzz_case, const FuzzFiles& files,
                             const CaseOptions& options);

// Checks only the tags of the last plan's tensors (parallel/tags), on every rank, without data or a
// reference.
CaseCheck check_tags_of_case(const FuzzCase& fuzz_case);

// Checks all plans on threads, in a temporary folder. An error that is thrown counts as a
// difference.
CaseCheck check_case_on_threads(const FuzzCase& fuzz_case, const CaseOptions& options);

}  // namespace lockstep
