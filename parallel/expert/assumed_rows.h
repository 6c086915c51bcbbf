// The rows that ranks exchange if tokens choose experts as the plan assumes (expert_choices.h): for
// predictions, and for a rank that runs without the others. All ranks are taken to have as many tokens
// in a micro-batch as this one.
#pragma once

#include <vector>

#include "models/routing.h"
#include "parallel/expert/dispatcher.h"
#include "parallel/plan/plan.h"

namespace lockstep {

class AssumedRows {
 public:
  // The plan must outlive it, and have experts.
  AssumedRows(const Plan& plan, int rank);

  // What this rank's routers choose: see Router::assume().
  std::vector<std::int32_t> experts(int layer, Count tokens) const;
  // Sets what arrives and passes, from what the other ranks choose; and, if rows are of tokens, for which
  // experts each is.
  void set_others(const ExpertGroup& group, Routing& routing) const;
  // Of all layers with experts and micro-batches of a step.
  std::vector<DispatchedRows> of_step(const ExpertGroup& group) const;
  // The rows that the experts of each rank with which it divides them compute in a step, by rank.
  std::vector<Count> loads() const;

 private:
  // Without dropped ones, by expert.
  std::vector<Count> rows_from(ChoiceSource source, int layer, Count tokens) const;
  // All rows of each expert in a layer and micro-batch.
  std::vector<Count> rows_of_experts(int layer, Count tokens) const;
  // What the routers of a rank choose.
  Routing routing_of(ChoiceSource source, int layer, Count tokens) const;
  void set_others(const ExpertGroup& group, int layer, Count tokens, Routing& routing) const;
  void set_tokens_of_others(const ExpertGroup& group, int layer, Count tokens,
                            Routing& routing) const;
  std::vector<int> layers_with_experts() const;
  Count own_tokens(Count rows) const { return split_.outer_rows(rows); }

  const Plan& plan_;
  int rank_;
  LayerSplit split_;
  const DispatchMethod& method_;
  // Of the ranks that divide experts, for each rank with a part of these experts and rows of its own.
  std::vector<std::vector<ChoiceSource>> sources_;
  std::size_t part_ = 0;  // of this rank
};

}  // namespace lockstep
