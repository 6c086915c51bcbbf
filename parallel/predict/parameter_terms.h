// What a set of a rank's parameters states: the memory of its values, gradients and states, what it
// exchanges with the ranks that have the same ones, and the part of the norm that is its own.
#pragma once

#include <optional>
#include <vector>

#include "parallel/plan/environment.h"
#include "parallel/plan/terms.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

class ParameterTerms {
 public:
  // All arguments must outlive it.
  ParameterTerms(const Plan& plan, int rank, const RankModel& model, ParameterSet set,
                 const Environment& environment);

  std::vector<Terms> all() const;
  const Parameters& parameters() const { return parameters_; }
  // The ranges whose gradients are summed at a time over ranks along tp: those of a unit, if the optimizer
  // steps in backward, else all.
  std::vector<std::vector<Range>> summed_together() const;
  // For how many elements of these ranges the rank holds gradients.
  Count held(const std::vector<Range>& ranges) const;

 private:
  bool are_experts() const { return set_ == ParameterSet::experts; }
  bool are_frozen() const { return !is_trained(set_); }
  std::vector<Terms> frozen() const;
  void add_exchange(std::vector<Terms>& all) const;
  Terms norm_of_experts() const;
  Terms states() const;

  const Plan& plan_;
  int rank_;
  ParameterSet set_;
  const RankModel& model_;
  const Parameters& parameters_;
  const ReplicaGroup& replicas_;
  const Environment& environment_;
  std::optional<Sharding> sharding_;
  RankUnits units_;  // if sharded
};

}  // namespace lockstep
