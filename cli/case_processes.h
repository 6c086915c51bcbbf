// Cases of `lockstep fuzz` in processes of their own, which mpirun starts with this program.
#pragma once

#include <string>

#include "parallel/fuzz/check_case.h"

namespace lockstep {

struct CaseProcesses {
  std::string transport;  // openmpi or mpich
  std::string fault;      // as --fault; empty: none
  double jitter_us = 0, timeout_s = 0;
};

// The first line that a replay prints, before the number.
inline constexpr const char* compared_text = "comparisons: ";

// Runs a case under mpirun. Throws Error (bad_input) if it needs threads, or mpirun is missing.
CaseCheck check_case_on_processes(const FuzzCase& fuzz_case, const CaseProcesses& processes,
                                  const CaseOptions& options);
// The part of one of these processes: the case's files exist.
CaseCheck check_case_in_process(const FuzzCase& fuzz_case, const FuzzFiles& files,
                                const CaseOptions& options);

}  // namespace lockstep
