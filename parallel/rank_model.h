// The part of a plan's model that one rank holds: its stages, and their parameters in one buffer.
#pragma once

#include <map>

#include "models/gpt_stage.h"
#include "parallel/plan.h"
#include "parallel/tensor/layers.h"

namespace lockstep {

struct RankModel {
  // Registers the parameters; allocate() gives them memory. `tensor` are the ranks that split its
  // layers. The plan must outlive it.
  RankModel(const Plan& plan, int rank, TensorRanks& tensor, Backend& backend, Ledger& ledger);
  RankModel(const RankModel&) = delete;

  Parameters parameters;
  std::map<int, GptStage> stages;  // by their number in the pipeline
};

// The same without memory or other ranks: its parameters say what a rank holds.
class RankOutline {
 public:
  RankOutline(const Plan& plan, int rank);
  const Parameters& parameters() const { return model_.parameters; }

 private:
  Ledger none_;
  TensorRanks tensor_;
  RankModel model_;
};

}  // namespace lockstep
