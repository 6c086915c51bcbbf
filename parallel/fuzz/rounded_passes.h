// Compressed gathers of parameters (`--gather`): passes of one rank with the parameters that ranks which
// shard them gather.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/fuzz/case_run.h"

namespace lockstep {

// All values of the model, each shard of a unit encoded and decoded. `whole` are its parameters.
Values rounded_by_gathers(const Plan& plan, const std::vector<Parameter>& whole,
                          const Values& values);

// While it lives, serial ranks have the parameters that the plan's ranks gather: for passes, not for steps.
// Does nothing if the plan gathers them whole.
class RoundedPasses {
 public:
  RoundedPasses(const Plan& plan, const std::vector<Parameter>& whole,
                std::span<const std::unique_ptr<TrainingRank>> ranks);
  ~RoundedPasses();
  RoundedPasses(const RoundedPasses&) = delete;

 private:
  struct Saved {
    Slice values;
    Values before;
  };
  std::vector<Saved> saved_;
};

}  // namespace lockstep
