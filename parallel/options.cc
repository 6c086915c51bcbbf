#include "parallel/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/base/error.h"
#include "models/gpt_config.h"
#include "models/schedule.h"
#include "parallel/loss_scale.h"
#include "parallel/technique.h"

namespace lockstep {

void check(const TrainOptions& options, int ranks) {
  const auto at_least = [](double value, double least, const char* flag) {
    require(value >= least && std::isfinite(value), fmt::format("{} {}", flag, value),
            fmt::format("use a finite number of at least {}", least));
  };
  const auto below_one = [](double value, const char* flag) {
    require(value >= 0 && value < 1, fmt::format("{} {}", flag, value),
            "use a number from 0 to below 1");
  };
  at_least(ranks, 1, "--ranks");
  at_least(options.global_batch, 1, "--global-batch");
  at_least(options.micro_batches, 1, "--micro-batches");
  at_least(options.steps, 1, "--steps");
  at_least(options.threads, 0, "--threads");
  at_least(options.sequence_length, 0, "--sequence-length");
  at_least(options.learning_rate, 0, "--lr");
  at_least(options.warmup_steps, 0, "--warmup-steps");
  at_least(options.weight_decay, 0, "--weight-decay");
  at_least(options.grad_clip, 0, "--grad-clip");
  at_least(options.eval_interval, 0, "--eval-interval");
  at_least(options.sample, 0, "--sample");
  at_least(options.compute_seconds, 0, "--compute-time");
  for (const auto& [rank, factor] : options.slow_ranks) {
    require(rank >= 0 && rank < ranks, fmt::format("--slow-rank {} of {} ranks", rank, ranks),
            fmt::format("ranks are 0 to {}", ranks - 1));
    at_least(factor, 1, fmt::format("--slow-rank {}:", rank).c_str());
  }
  below_one(options.dropout, "--dropout");
  below_one(options.label_smoothing, "--label-smoothing");
  model_options(options);
  below_one(options.beta1, "--beta1");
  below_one(options.beta2, "--beta2");
  below_one(options.validation_fraction, "--validation-fraction");
  require(options.eps > 0 && std::isfinite(options.eps), fmt::format("--eps {}", options.eps),
          "use a number above 0");
  require(options.order == "random" || options.order == "sequential",
          fmt::format("--order '{}'", options.order), "choose random or sequential");
  require(is_floating(options.dtype), fmt::format("--dtype {}", name_of(options.dtype)),
          "choose f32, f64, bf16 or f16");
  loss_scaling_from_name(loss_scaling(options));
  technique(options.technique).check(options, ranks);
  const GptConfig config = gpt_config(options.model);
  require(options.sequence_length <= config.context,
          fmt::format("--sequence-length {} with a context of {}", options.sequence_length,
                      config.context),
          "use no more tokens than the model's context");
}

int sequence_length(const TrainOptions& options, const GptConfig& config) {
  return options.sequence_length > 0 ? options.sequence_length : config.context;
}

ModelOptions model_options(const TrainOptions& options) {
  return {.dropout = {.rate = options.dropout,
                      .seed = options.seed,
                      .streams = dropout_streams_from_name(options.dropout_streams)},
          .label_smoothing = options.label_smoothing,
          .recompute = recompute_from_name(options.recompute)};
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
  // As torch.nn.utils.clip_grad_norm_: the small term keeps a norm of zero harmless.
  constexpr double norm_epsilon = 1e-6;
  if (options.grad_clip <= 0) return 1;
  return std::min(1.0, options.grad_clip / (gradient_norm + norm_epsilon));
}

}  // namespace lockstep
