// One rank's training in a fuzzed case, one step at a time, and the comparisons of its results.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/fuzz/comparison.h"
#include "parallel/training.h"

namespace lockstep {

// What a step gives that does not depend on the plan.
struct CaseStep {
  double loss = 0, norm = 0, clip = 1;
  Values gradients;  // on rank 0
};

class CaseSteps {
 public:
  // Takes the weights of the plan's file, or goes on from its checkpoint.
  CaseSteps(RankContext& context, const Plan& plan);

  int first() const { return first_; }
  Training& training() { return training_; }
  const std::vector<Parameter>& whole() const { return whole_; }

  CaseStep take(int number);
  // All values or gradients, times a factor, on rank 0; there an element that no rank counts is NaN.
  Values values_of(Gathered what, double factor = 1);

  // The values that this rank holds now, those that other ranks hold, too, included.
  void compare_own_values(CaseComparison& comparison, const Values& expected);
  // The traffic and the memory of the last step against their closed forms.
  void compare_predictions(CaseComparison& comparison, int number);

 private:
  void compare_memory(CaseComparison& comparison, const Prediction& prediction);

  RankContext& context_;
  const Plan& plan_;
  Training training_;
  std::vector<Parameter> whole_;
  std::unique_ptr<TrainingRank> rank_;
  double scale_;
  int first_ = 0;
  std::map<std::string, Volume, std::less<>> counted_;
  TierTraffic moved_;
  std::int64_t pairs_ = 0;
};

}  // namespace lockstep
