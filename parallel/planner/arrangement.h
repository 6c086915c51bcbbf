// How a model is trained on a number of GPUs: what the cost model needs to know of a plan.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/gpt/recompute.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/planner/cluster_sheet.h"
#include "parallel/planner/software_profile.h"
#include "parallel/planner/transformer.h"

namespace lockstep {

// Passes of a step that are replayed: more would take seconds and gigabytes.
inline constexpr std::int64_t most_passes = std::int64_t{1} << 22;

// Consecutive GPUs are neighbours along tp, then cp, dp and pp, or, if stages come first, tp, cp, pp and
// dp. Experts divide the same tp x cp x dp GPUs in another way: neighbours along etp, which splits each
// expert, then ep, then their replicas.
struct Arrangement {
  int gpus = 1, tp = 1, cp = 1, pp = 1, dp = 1;
  int ep = 1, etp = 1;
  bool stages_first = false;
  int zero_stage = 0;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  std::int64_t micro_batch_size = 1, global_batch = 1, sequence_length = 1;
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  bool fp8_gemms = false;
  bool tensor_overlap = false;           // tp's exchanges while products are computed
  std::vector<int> layers_per_stage;     // in the order in which micro-batches pass the stages
  std::vector<std::string> assumptions;  // of what the plan does not say

  int micro_batches() const { return static_cast<int>(global_batch / (micro_batch_size * dp)); }
  // Forward passes of a step through all stages.
  std::int64_t passes() const { return global_batch / (micro_batch_size * dp) * stages(); }
  int replicas() const { return dp * cp; }                           // ranks that sum gradients
  int expert_replicas() const { return tp * cp * dp / (ep * etp); }  // those of experts
  bool has_replicas(const Transformer& model) const {
    return replicas() > 1 || (model.experts.count > 0 && expert_replicas() > 1);
  }
  int stages() const { return pp * virtual_stages; }
  // Whether the first rank has the last stage, too: without a pipeline, and where the two stages of each
  // rank lie on a V.
  bool has_ends_together() const { return pp == 1 || find_schedule(schedule).virtual_stages == 2; }
  // Tokens of a micro-batch on a rank, in the layers split by tp and between them.
  double tokens() const {
    return static_cast<double>(micro_batch_size) * static_cast<double>(sequence_length) / cp;
  }
  double tokens_between_layers() const { return sequence_parallel ? tokens() / tp : tokens(); }
  // Rows that a rank sends to experts, each of its tokens to several, and that its own experts get: as
  // if all experts got the same.
  double sent_rows(const Transformer& model) const {
    return tokens_between_layers() * static_cast<double>(model.experts.per_token);
  }
  double expert_rows(const Transformer& model) const { return sent_rows(model) * etp; }
  PipelineShape shape() const { return {pp, micro_batches(), virtual_stages}; }
};

// How many layers have a dense MLP, and how many have experts.
struct LayerKinds {
  int dense = 0, with_experts = 0;
  int all() const { return dense + with_experts; }
  LayerKinds& operator+=(const LayerKinds& other) {
    dense += other.dense;
    with_experts += other.with_experts;
    return *this;
  }
};
// The layers of each stage.
std::vector<LayerKinds> stage_layers(const Transformer& model, const Arrangement& arrangement);

// From a plan's keys: tp, cp, pp, dp, ep, etp, order, zero, schedule, virtual_stages, micro_batch_size,
// global_batch, sequence_length, recompute, sequence_parallel, dtype, gemm_dtype, layers_per_stage,
// ends_count_as_layers (the embedding and the loss take the place of a layer each), tp_overlap. dp
// follows from the others where it is not given. Stated as assumptions: the layers of each stage where
// stages do not divide them, which are balanced then; that etp is 1, where a model with experts has tp;
// and that a model predicts no further tokens. `where` begins the error. Throws Error (bad_input) for a
// key that there is not, and for what the model, the GPUs or the cost model cannot be.
Arrangement arrangement_from(const nlohmann::ordered_json& plan, int gpus, const Transformer& model,
                             const std::string& where);

// "tp-cp-dp-pp" or "tp-cp-pp-dp", from the fastest axis to the slowest.
std::string_view order_of(const Arrangement& arrangement);
// Returns "none", "selective" or "full".
std::string_view name_of(Recompute recompute);

// The layers of each stage, as equal as can be: of stages that have one more, the ends, which have
// the embedding and the head, are the last.
std::vector<int> balanced_layers(std::int64_t layers, int stages);

// Throws Error (bad_input) if the software has no experts, but the model has.
void check_experts(const Transformer& model, const SoftwareProfile& profile,
                   const std::string& where);
// Throws Error (bad_input) if the software or the hardware does not do what is arranged.
void check(const Arrangement& arrangement, const Transformer& model, const ClusterSheet& cluster,
           const SoftwareProfile& profile, const std::string& where);

// The vocabulary in the embedding: a multiple of 128 for each rank of tp, as Megatron pads it.
std::int64_t padded_vocabulary(const Transformer& model, const Arrangement& arrangement);

}  // namespace lockstep
