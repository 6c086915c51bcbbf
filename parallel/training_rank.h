// What the training loop asks of a rank, whatever it holds of the model.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/dataset.h"
#include "models/parameters.h"
#include "parallel/prediction.h"
#include "parallel/result.h"

namespace lockstep {

// What of the parameters is gathered.
enum class Gathered : std::uint8_t { values, gradients };
// Takes one rank's part: its parameters, and the flat buffer of what was asked for, in the host's
// memory.
using PartSink = std::function<void(const Parameters& part, Slice flat)>;

class TrainingRank {
 public:
  virtual ~TrainingRank() = default;

  // Every rank takes its part of the first weights. Called once, before the first step.
  virtual void load_weights() = 0;
  // Gives the parts of the whole model to `sink`, which is called on rank 0 alone; each element is
  // counted in one of them. Gradients are those of the last accumulate().
  virtual void gather(Gathered what, const PartSink& sink) = 0;

  // Forward and backward of this rank's micro-batches, until the gradients are those of the whole
  // global batch of `total_targets` targets, times `loss_scale`. Returns this rank's part of the
  // loss, not scaled: the parts of all ranks add up to the mean.
  virtual double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                            double loss_scale) = 0;
  // L2 norm of the gradients of all parameters.
  virtual double gradient_norm() = 0;
  // One AdamW step with gradients times `gradient_scale`.
  virtual void update(double learning_rate, double gradient_scale) = 0;
  // The sum of the token losses of a batch; where ranks hold one model together, all of them take
  // the same batch, and their parts add up to it.
  virtual double loss_sum(const Batch& batch) = 0;

  // Called once, after the last step, by every rank: what was seen of a pipeline.
  virtual PipelineRecord finish() { return {}; }
  // Seconds this rank has waited for communication so far, and seconds of all its communication,
  // overlapped with compute or not.
  virtual double exposed_seconds() const { return 0; }
  virtual double communication_seconds() const { return exposed_seconds(); }
  // The closed forms of this rank.
  virtual Prediction prediction() const = 0;
};

}  // namespace lockstep
