// The interface between the training loop and a rank, whatever part of the model it holds.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/data/dataset.h"
#include "models/optimizers/optimizer.h"
#include "models/optimizers/whole_matrices.h"
#include "models/parameters.h"
#include "parallel/plan/prediction.h"
#include "parallel/plan/result.h"

namespace lockstep {

// What to gather: values or gradients.
enum class Gathered : std::uint8_t { values, gradients };
// Receives one rank's part: its parameters, and the flat buffer of their values or gradients in the
// host's memory.
using PartSink = std::function<void(const Parameters& part, Slice flat)>;

// The state of a set of parameters that a rank needs to resume training, and which other ranks hold
// copies of it.
struct TrainingState {
  std::vector<Optimizer*> optimizers;  // of disjoint elements; copies have the same states
  // Elements that several ranks of the layer split hold are counted by one of them.
  const Parameters* parameters = nullptr;
  WholeMatrices* matrices = nullptr;  // the states of those that the rank owns
  int copies = 1, copy = 0;  // replicas with the same states, and this rank's index among them
  // What this rank alone keeps between steps, of f32 or f64: no other rank can give it back.
  struct Own {
    std::string name;
    Slice numbers;
  };
  std::vector<Own> own = {};

  // Adds those slices that have elements, as "NAME.0" and so on.
  void add_own(const std::string& name, const std::vector<Slice>& all);
};

// Seconds a rank has waited for messages or slower ranks, by purpose.
struct ExposedSeconds {
  double layers = 0;    // split over ranks along tp
  double sequence = 0;  // split over ranks along cp
  double experts = 0;   // divided between ranks
  double replicas = 0;  // gradients, and parameters in shards or on servers
  double pipeline = 0;  // micro-batches of other stages
  double model = 0;     // parameters that several ranks of a model share, and the norm

  double sum() const { return layers + sequence + experts + replicas + pipeline + model; }
  ExposedSeconds operator-(const ExposedSeconds& before) const {
    return {.layers = layers - before.layers,
            .sequence = sequence - before.sequence,
            .experts = experts - before.experts,
            .replicas = replicas - before.replicas,
            .pipeline = pipeline - before.pipeline,
            .model = model - before.model};
  }
};

class TrainingRank {
 public:
  virtual ~TrainingRank() = default;

  // Every rank takes its part of the initial weights. Called once, before the first step.
  virtual void load_weights() = 0;
  // Passes the parts of the whole model to `sink`, which is called on rank 0 only. Each element is
  // counted in one part. Gradients are those of the last accumulate().
  virtual void gather(Gathered what, const PartSink& sink) = 0;

  // Before accumulate(), for a plan whose optimizer steps in backward, and for no other: the learning rate
  // of these steps. Then gradients are gone afterwards, and update() steps only what has none.
  virtual void step_in_backward(double /*learning_rate*/) {}
  // Runs forward and backward of this rank's micro-batches. Afterwards gradients are those of the
  // whole global batch of `total_targets` targets, times `loss_scale`; of a
  // replica that steps alone, those of its own part, times the replicas. Returns this rank's unscaled
  // part of the loss; the parts of all ranks add up to the mean.
  virtual double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                            double loss_scale) = 0;
  // What routers have chosen on this rank since the last call.
  virtual RoutingTotals take_routing() { return {}; }
  // The routers of this rank's layers.
  virtual std::vector<LayerRouter> routers() { return {}; }
  // L2 norm of the gradients of all parameters.
  virtual double gradient_norm() = 0;
  // One optimizer step with gradients times `gradient_scale`, and one step of the routers' biases
  // with what was chosen since take_routing().
  virtual void update(double learning_rate, double gradient_scale) = 0;
  // Called instead of update() if the gradients overflowed; only with loss scaling.
  virtual void skip() {}
  // Returns when no communication of past steps is under way: new weights may be gathered until
  // their next use.
  virtual void wait_for_parameters() {}
  // The sum of the token losses of a batch. Ranks that hold one model together all take the same
  // batch, and their parts add up to the sum.
  virtual double loss_sum(const Batch& batch) = 0;

  virtual std::vector<TrainingState> states() = 0;
  // The states are those of a checkpoint: all ranks take their parameters from them. Replaces
  // load_weights().
  virtual void take_restored() = 0;

  // Called once by every rank after the last step. Returns the measurements of a pipeline.
  virtual PipelineRecord finish() { return {}; }
  // The seconds of each action of its schedule in the last step.
  virtual std::vector<double> last_passes() const { return {}; }
  // Seconds for which this rank has waited for communication so far, and seconds of all its
  // communication, overlapped with compute or not.
  virtual ExposedSeconds exposed() const { return {}; }
  double exposed_seconds() const { return exposed().sum(); }
  virtual double communication_seconds() const { return exposed_seconds(); }
  // Bytes moved from and to a second tier of memory so far.
  virtual TierTraffic tier_traffic() const { return {}; }
  // (query, key) pairs that this rank's context-parallel attention has computed so far in training.
  virtual std::int64_t attention_pairs() const { return 0; }
  // Rows that its experts have computed so far in training, if ranks divide or split the experts.
  virtual std::optional<std::int64_t> expert_rows() const { return {}; }
  // What is predicted for this rank.
  virtual Prediction prediction() const = 0;
};

}  // namespace lockstep
