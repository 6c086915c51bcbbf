#include "cli/found_plan.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/gpt/gpt_stage.h"
#include "models/gpt_config.h"

namespace lockstep {
Plan found_plan(const Arrangement& a, const std::string& model) {
  const int layers = gpt_config(model).layers;
  for (int stage = 0; stage < a.stages(); ++stage)
    require(
        layers_of_stage(layers, a.stages(), stage).count ==
            a.layers_per_stage[static_cast<std::size_t>(stage)],
        "Lockstep does not train the best plan: of stages with unequal layers, its first have more",
        "search with a number of GPUs that has plans with equal stages");
  TrainOptions options = default_options("3d");
  options.model = model;
  options.dtype = DType::bf16;
  options.global_batch = static_cast<int>(a.global_batch);
  options.micro_batches = a.micro_batches();
  options.sequence_length = static_cast<int>(a.sequence_length);
  options.recompute = name_of(a.recompute);
  for (const auto& [axis, length] : {std::pair{Axis::tp, a.tp}, {Axis::cp, a.cp}, {Axis::pp, a.pp}})
    options.mesh_lengths[axis] = length;
  options.sequence_parallel = a.sequence_parallel;
  if (a.cp > 1) options.ring_ranks = a.cp;
  if (a.ep > 1) options.expert_ranks = a.ep;
  if (gpt_config(model).experts.exist() && a.tp > 1) options.expert_tensor_ranks = a.etp;
  if (a.replicas() > 1) options.zero_stage = a.zero_stage;
  if (a.pp > 1) {
    options.mesh_order = order_of(a);
    options.schedule = a.schedule;
    options.virtual_stages = a.virtual_stages;
  }
  try {
    return plan_of(options, a.gpus);
  } catch (const Error& error) {
    require(false, fmt::format("Lockstep does not train the best plan: {}", error.message()),
            error.context().hint);
    throw;
  }
}

}  // namespace lockstep
