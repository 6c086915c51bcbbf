// Replicas that take their steps alone (`--local-steps`), on one rank: what they exchange, in a loop of its own.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "parallel/fuzz/case_run.h"

namespace lockstep {

class ReplicasApart {
 public:
  // `replicas` have their first weights, the same, and must outlive it.
  ReplicasApart(const std::vector<std::unique_ptr<TrainingRank>>& replicas,
                const TrainOptions& options);
  // After each of the replicas' steps, with the number of steps taken.
  void after_step(int steps);
  // The weights that replicas have in common since the last outer step, one parameter after another.
  const Values& common() const { return common_; }

 private:
  struct Exchange {
    int due;            // the outer step is taken after so many steps
    std::size_t begin;  // of the fragment
    Values differences = {};
  };
  void end_exchanges(int steps);
  void start_exchanges(int steps);
  void take_outer_step(const Exchange& exchange);

  const std::vector<std::unique_ptr<TrainingRank>>& replicas_;
  const TrainOptions& options_;
  Values common_, momentum_;
  std::deque<Exchange> under_way_;
};

}  // namespace lockstep
