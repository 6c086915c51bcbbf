// Trains a case on one rank, in a separate loop that shares nothing with trainer.cc.
#pragma once

#include <map>

#include "parallel/fuzz/case_run.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

struct ReferenceRun : CaseRun {
  // Whether gradients overflow with a scale far above a step's, and with one far below it: sums over
  // many ranks may overflow at slightly different scales than sums on one rank.
  struct Overflow {
    bool above = false, below = false;
  };
  std::map<int, Overflow> overflows;  // by step, for steps taken with loss scaling
};

// Takes as many steps as `taken` has, from the first one on, and skips those that `taken` marks as
// skipped. In f64 the scale of the loss is 1. Where plans compress gradients, it computes its own, and steps
// with those of the case's files, so that both have the same weights in the next step.
ReferenceRun serial_run(const FuzzCase& fuzz_case, const FuzzFiles& files, DType dtype,
                        const std::map<int, StepTaken>& taken);

}  // namespace lockstep
