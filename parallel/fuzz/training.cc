// What all plans of a case train, and which training is stable enough to compare.
#include <algorithm>

#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

bool is_stable(const FuzzCase& fuzz_case) {
  Count narrowest = element_bytes(fuzz_case.last().options.dtype);
  for (const FuzzPlan& plan : fuzz_case.plans)
    if (plan.options.reduce_dtype)
      narrowest = std::min(narrowest, element_bytes(*plan.options.reduce_dtype));
  // Orthogonal steps magnify what is small in a gradient, and with it what is rounded.
  if (needs_whole_matrices(fuzz_case.last().options.optimizer) && narrowest < 8) return false;
  // What begins as zero is all steps, and these are as inexact as gradients.
  const TrainOptions& last = fuzz_case.last().options;
  if (last.lora_rank > 0 && last.lora_init.empty() && narrowest < 8) return false;
  // Outer steps go further than all that they repeat, and so does its rounding.
  if (last.local_steps && narrowest < 8) return false;
  const GptConfig& model = fuzz_case.model;
  switch (narrowest) {
    case 8:
      // Routers and experts multiply them, too.
      return model.width >= (model.experts.exist() && model.layers > 4 ? 8 : 4);
    case 4:
      return model.width >= 8 && model.layers <= 5;
    default:
      // A few long steps from inexact gradients lead elsewhere.
      return model.width >= 16 && model.layers <= 2 && last.learning_rate * last.steps <= 0.01;
  }
}

bool drops_by_rank(const FuzzPlan& plan) {
  return plan.options.dropout.value_or(0) > 0 && plan.options.dropout_streams == "megatron";
}

void take_training(TrainOptions& into, const TrainOptions& from) {
  static_cast<InputOptions&>(into) = from;
  static_cast<PrecisionOptions&>(into) = from;
  static_cast<RegularizationOptions&>(into) = from;
  const bool in_backward = into.optimizer_in_backward;
  static_cast<OptimizerOptions&>(into) = from;
  into.optimizer_in_backward = in_backward;
  static_cast<LoraOptions&>(into) = from;
  const ExpertOptions own = into;
  static_cast<ExpertOptions&>(into) = from;
  into.expert_ranks = own.expert_ranks;
  into.expert_tensor_ranks = own.expert_tensor_ranks;
  into.token_dispatcher = own.token_dispatcher;
  into.router_weights = own.router_weights;
  into.shared_expert_overlap = own.shared_expert_overlap;
  into.overlap_pairs = own.overlap_pairs;
  into.global_batch = from.global_batch;
  into.sequence_length = from.sequence_length;
  into.validation_fraction = from.validation_fraction;
}

}  // namespace lockstep
