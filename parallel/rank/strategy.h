// Data parallelism as a strategy: how the replicas of a rank's part of the model share weights,
// gradients and optimizer states. The plan chooses it, and the runtime calls it under any mesh.
//
// A unit is gathered and reduced as a whole: a block, or an end of the model. A strategy that keeps
// a unit's parameters whole does nothing before and after its use.
//
// A step: begin, then what a schedule's observer sees: uses of units, gradients as they become ready,
// and collectives; then finish, squared_norm and step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "models/optimizers/whole_matrices.h"
#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/rank_model.h"
#include "parallel/rank/schedule_observer.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// Takes the step of a unit in backward: with its optimizer, which has its gradients then, and with its
// parameters in the list of the set.
using StepUnit = std::function<void(Optimizer& optimizer, std::span<const int> parameters)>;

class DataParallel : public ScheduleObserver {
 public:
  // The rank's whole matrices, which must outlive it: before the first step. Only exchanges that project
  // gradients need them.
  virtual void take_matrices(const WholeMatrices&) {}

  // Every replica gets its part of the first weights, before the first step. read() fills all
  // parameters that have memory; strategies call it as often as they need.
  virtual void load(const std::function<void()>& read) = 0;

  // A step begins: gradients become zero. Backward will compute those of loss times `loss_scale`.
  virtual void begin(double loss_scale) = 0;
  // Called instead of step() if the gradients overflowed; only with loss scaling.
  virtual void skip() {}
  // For plans whose optimizer steps in backward: calls `step_unit` for each unit in every step, as soon as
  // its gradients are sums over all replicas. They are gone afterwards; finish() completes the last units.
  virtual void step_in_backward(const StepUnit& /*step_unit*/) {}
  // Returns when the gradients that this rank uses for its update are sums over all replicas.
  virtual void finish() = 0;

  // Memory of the given flat-buffer ranges, as far as this rank holds their gradients after
  // finish().
  virtual std::vector<Slice> own_gradients(const std::vector<Range>& ranges) = 0;
  // Returns the sum of squares of the gradients that this rank's part of the model counts, over all
  // replicas.
  virtual double squared_norm() = 0;
  // One optimizer step with gradients times `gradient_scale`. All replicas then have new weights; a
  // strategy may still gather them until their next use.
  virtual void step(double learning_rate, double gradient_scale) = 0;
  // Returns when all gathers have finished.
  virtual void wait_for_parameters() {}
  // Returns the optimizers of the elements that this rank updates, and which of several copies
  // these are.
  virtual TrainingState state() = 0;
  // The optimizers that step() steps. They are those of the state, unless other ones are shared.
  virtual std::vector<Optimizer*> optimizers() { return state().optimizers; }
  // The optimizers hold the states of a checkpoint: every replica takes its parameters from them.
  virtual void take_restored() {}
  // The rank's flat buffer of values or reduced gradients, which every replica gets; in memory of its own
  // where a rank holds only a part.
  struct FlatBuffer {
    Slice all;
    Tensor memory = {};
  };
  virtual FlatBuffer flat(Gathered what) = 0;

  // Seconds for which this rank waited for its replicas, and seconds of communication with them,
  // overlapped with compute or not.
  virtual double waiting_seconds() const = 0;
  virtual double communication_seconds() const = 0;
  // Bytes moved from and to a second tier of memory so far.
  virtual TierTraffic tier_traffic() const { return {}; }
  // What the closed forms need to know: algorithms that `auto` has chosen, ranks per node.
  virtual ReplicaFacts facts() const = 0;
};

// The plan's strategy for a set of the model's parameters, which the ranks of `replicas` also have.
// Gives these parameters memory. All arguments must outlive it.
std::unique_ptr<DataParallel> make_data_parallel(RankContext& context, Communicator& replicas,
                                                 const Plan& plan, RankModel& model,
                                                 ParameterSet set, Backend& backend);

}  // namespace lockstep
