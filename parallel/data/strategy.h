// Data parallelism as a strategy: how the replicas of a rank's part of the model share weights,
// gradients and optimizer states. The plan chooses it, and the runtime calls it under any mesh.
//
// A unit is gathered and reduced as a whole: a block, or an end of the model. A strategy that keeps
// a unit's parameters whole does nothing before and after its use.
#pragma once

#include <string>
#include <vector>

#include "collectives/transport/launch.h"
#include "models/backend.h"
#include "models/parameters.h"
#include "parallel/pipeline/schedules/schedule.h"
#include "parallel/plan.h"

namespace lockstep {

class DataParallel {
 public:
  virtual ~DataParallel() = default;

  // Every replica gets the weights of the first one. Called once, before the first step.
  virtual void share_weights() = 0;

  // A step begins: gradients are zero.
  virtual void begin() = 0;
  // The schedule's collectives: unshard a stage before its next actions, reshard it after them, and
  // reduce its complete gradients. Does nothing if nothing is sharded: then gradients are reduced as
  // they become ready.
  virtual void take(const Action&) {}
  // Backward has completed this rank's gradient of a parameter; from now on it may be reduced.
  virtual void gradient_ready(int parameter) = 0;
  // Returns when the gradients that this rank uses for its update are sums over all replicas.
  virtual void finish() = 0;

  // The sum of squares of the gradients that this rank counts, over all replicas.
  virtual double squared_norm() = 0;
  // One optimizer step with gradients times `gradient_scale`. All replicas then have new weights.
  virtual void step(double learning_rate, double gradient_scale) = 0;

  // Seconds for which this rank waited for its replicas, and seconds of communication with them,
  // overlapped with compute or not.
  virtual double waiting_seconds() const = 0;
  virtual double communication_seconds() const = 0;
  // The choices of `--algorithm auto`, by bucket, for the closed forms.
  virtual std::vector<std::string> algorithms() const = 0;
};

// For the ranks of `replicas`, which hold the same parameters. All arguments must outlive it.
std::unique_ptr<DataParallel> make_data_parallel(RankContext& context, Communicator& replicas,
                                                 const Plan& plan, Parameters& parameters,
                                                 Backend& backend);

}  // namespace lockstep
