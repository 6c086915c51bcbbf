#include "parallel/plan/options.h"

#include <algorithm>
#include <cmath>

#include "models/optimizers/learning_rate.h"

namespace lockstep {

int MeshOptions::mesh_ranks(std::span<const Axis> along) const {
  int ranks = 1;
  for (const Axis axis : along) ranks *= mesh_lengths[axis].value_or(1);
  return ranks;
}

void check_bounds(const TrainOptions& options) {
  TrainOptions copy = options;
  for (const OptionGroup& group : describe(copy))
    for (const Option& option : group.options) check(option);
}

bool compresses(const DataParallelOptions& options) {
  return options.exchange != "none" && options.exchange != "bf16";
}

bool partitions_activations(const TrainOptions& options) {
  return options.partition_activations && options.recompute == "full" &&
         options.mesh_lengths[Axis::tp].value_or(1) > 1 && !options.sequence_parallel;
}

ModelOptions model_options(const TrainOptions& options) {
  return {.dropout = {.rate = options.dropout.value_or(0),
                      .seed = options.seed,
                      .streams = dropout_streams_from_name(options.dropout_streams)},
          .label_smoothing = options.label_smoothing,
          .recompute = recompute_from_name(options.recompute),
          .kept_input = !partitions_activations(options) ? KeptInput::whole
                        : options.offload_activations    ? KeptInput::offloaded
                                                         : KeptInput::part,
          .lora = lora_config(options)};
}

OptimizerSettings optimizer_settings(const TrainOptions& options) {
  return {.name = options.optimizer,
          .weight_decay = options.weight_decay,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .momentum = options.momentum,
          .muon_momentum = options.muon_momentum,
          .muon_rate = options.muon_learning_rate / options.learning_rate,
          .galore = {options.galore_rank, options.galore_projection},
          .galore_period = options.galore_period,
          .galore_scale = options.galore_scale};
}

std::string loss_scaling(const TrainOptions& options) {
  if (!options.loss_scaling.empty()) return options.loss_scaling;
  return options.dtype == DType::f16 ? "torch" : "none";
}

double learning_rate(const TrainOptions& options, int step) {
  const bool cosine = options.minimum_learning_rate >= 0;
  const LearningRateSchedule schedule{
      .peak = options.learning_rate,
      .warmup_steps = options.warmup_steps,
      .minimum = cosine ? options.minimum_learning_rate : options.learning_rate,
      .total_steps = options.steps,
      .cosine = cosine};
  return schedule.at(step);
}

double clip_factor(const TrainOptions& options, double gradient_norm) {
  // As in torch.nn.utils.clip_grad_norm_: the small term avoids a division by zero.
  constexpr double norm_epsilon = 1e-6;
  if (options.grad_clip <= 0) return 1;
  return std::min(1.0, options.grad_clip / (gradient_norm + norm_epsilon));
}

}  // namespace lockstep
