// The results of a case's training run on one rank, seen from within train().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/fuzz/comparison.h"
#include "parallel/train/trainer.h"

namespace lockstep {

// The results of a step that do not depend on the plan.
struct CaseStep {
  double loss = 0, norm = 0;
  Values gradients = {};  // on rank 0; none of a skipped step
  // What replicas have made of them to send fewer bytes, if they have; in the reference.
  Values compressed = {};
};

// How a step was taken: with which scale of the loss, and whether it was skipped, because its
// gradients had overflowed.
struct StepTaken {
  double scale = 1;
  bool skipped = false;
};

struct CaseRun {
  std::map<int, CaseStep> steps;
  std::map<int, double> validation;  // the loss, by the steps taken before; on rank 0
  std::map<int, Values> weights;     // the same; on rank 0
  // What each replica has after the last step, if they take their steps alone; in the reference.
  std::vector<Values> of_replicas;
};

// A parameter's values as one rank holds them.
struct OwnValue {
  Parameter parameter;
  Values values;
};

struct RunOnRank : CaseRun {
  std::map<int, StepTaken> taken;
  std::vector<OwnValue> own;         // after the last step
  Values kept;                       // by all ranks, of compressed gradients: see kept.h
  std::vector<TheoryRecord> theory;  // of all ranks, on rank 0
  CountedStep counted;               // of the last step that was taken
  Prediction prediction;             // of that step
};

// Trains on this rank together with the others.
RunOnRank run_case(RankContext& context, const Plan& plan);

// Numbers in the host's or a device's memory, as f64.
Values widened(Slice numbers);

// All values or gradients of the model times a factor, on rank 0; there an element that no rank
// counts is NaN.
Values gathered(TrainingRank& rank, Gathered what, const std::vector<Parameter>& whole,
                double factor = 1);

}  // namespace lockstep
