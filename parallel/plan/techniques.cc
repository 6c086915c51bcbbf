// The techniques. Each is a preset: a plan with one axis free.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/base/error.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

// 176 billion parameters on 384 GPUs: tp 4, pp 12, dp 8.
void as_bloom(TrainOptions& o) {
  o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::pp] = 2;
  o.zero_stage = 1;
  o.micro_batches = 2;
  o.recompute = "full";
}

// 175 billion parameters on each 64 GPUs: tp 8, pp 8.
void as_megatron(TrainOptions& o) {
  o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::pp] = 2;
  o.sequence_parallel = true;
  o.zero_stage = 1;
  o.schedule = "interleaved";
  o.micro_batches = 2;
  o.recompute = "selective";
}

}  // namespace

const std::vector<TechniqueEntry>& techniques() {
  static const std::vector<TechniqueEntry> entries = {
      {.name = "serial",
       .summary = "one rank, the reference",
       .demo_ranks = {1},
       .is_reference = true},
      {.name = "ddp",
       .summary = "data parallel: gradients all-reduced in buckets, overlapped with backward",
       .demo_ranks = {2, 4},
       .free_axis = Axis::dp},
      {.name = "zero",
       .summary = "data parallel with sharded optimizer states, gradients and parameters, by stage",
       .demo_ranks = {4},
       .demo_flags = {"--stage", "2"},
       .free_axis = Axis::dp,
       .zero_stage = 1,
       .chooses_zero_stage = true},
      {.name = "fsdp",
       .summary =
           "fully sharded data parallel: parameters are gathered block by block, with prefetch",
       .demo_ranks = {2},
       .free_axis = Axis::dp,
       .zero_stage = 3},
      {.name = "ps",
       .summary = "parameter server: workers push gradients to servers and pull parameters",
       .demo_ranks = {3, 5},
       .free_axis = Axis::dp,
       .has_servers = true},
      {.name = "pipeline",
       .summary = "the layers in stages, micro-batches through them in the order of a schedule",
       .demo_ranks = {2, 4},
       .demo_flags = {"--micro-batches", "12"},
       .free_axis = Axis::pp,
       .has_pipeline = true},
      {.name = "tp",
       .summary = "every layer split over the ranks: Megatron's column- and row-parallel products",
       .demo_ranks = {2},
       .free_axis = Axis::tp},
      {.name = "sp",
       .summary = "tp with the sequence also split between the layers",
       .demo_ranks = {4},
       .free_axis = Axis::tp,
       .set_implied = [](TrainOptions& o, int) { o.sequence_parallel = true; }},
      {.name = "ring-attention",
       .summary = "every sequence over the ranks: keys and values travel around a ring of them",
       .demo_ranks = {4},
       .free_axis = Axis::cp,
       .set_implied = [](TrainOptions& o, int ranks) { o.ring_ranks = ranks; }},
      {.name = "ulysses",
       .summary = "every sequence over the ranks, which exchange tokens for heads",
       .demo_ranks = {2},
       .free_axis = Axis::cp,
       .set_implied = [](TrainOptions& o, int ranks) { o.ulysses_ranks = ranks; }},
      {.name = "cp",
       .summary = "every sequence split over the ranks, which all-gather keys and values; or a mix "
                  "of methods",
       .demo_ranks = {4},
       .demo_flags = {"--ulysses", "2"},
       .free_axis = Axis::cp},
      {.name = "3d",
       .summary = "tensor, context, pipeline and data parallelism together, along a mesh's axes",
       .demo_ranks = {8},
       .demo_flags = {"--tp", "2", "--pp", "2", "--micro-batches", "3"},
       .free_axis = Axis::dp,
       .has_pipeline = true,
       .has_mesh = true,
       .chooses_zero_stage = true},
      {.name = "moe",
       .summary = "3d of a model with experts, which the replicas divide: expert parallelism",
       .demo_ranks = {4},
       .free_axis = Axis::dp,
       .has_pipeline = true,
       .divides_experts = true,
       .has_mesh = true,
       .chooses_zero_stage = true,
       .preset_of = "3d",
       .set_defaults = [](TrainOptions& o) { o.model = "nano-moe"; }},
      {.name = "bloom-like",
       .summary = "3d as BLOOM was trained, scaled down: tp, pipeline, ZeRO-1 over the replicas",
       .demo_ranks = {8},
       .free_axis = Axis::dp,
       .has_pipeline = true,
       .has_mesh = true,
       .chooses_zero_stage = true,
       .preset_of = "3d",
       .set_defaults = as_bloom},
      {.name = "megatron-like",
       .summary =
           "3d as Megatron-LM trains, scaled down: sp, interleaved pipeline, sharded optimizer",
       .demo_ranks = {8},
       .free_axis = Axis::dp,
       .has_pipeline = true,
       .has_mesh = true,
       .chooses_zero_stage = true,
       .preset_of = "3d",
       .set_defaults = as_megatron},
  };
  return entries;
}

TrainOptions default_options(std::string_view name) {
  const TechniqueEntry& entry = technique(name);
  TrainOptions options;
  options.technique = entry.name;
  if (entry.set_defaults) entry.set_defaults(options);
  return options;
}

int default_ranks(const TrainOptions& options) {
  const TechniqueEntry& entry = technique(options.technique);
  // More ranks than any plan may have overflow neither this nor the error.
  Count ranks = options.mesh_lengths[Axis::cp]  // contains the other two
                    ? 1
                    : options.ulysses_ranks.value_or(1) * Count{options.ring_ranks.value_or(1)};
  bool is_free = true;
  for (const Axis axis : axes()) {
    const std::optional<int> length = options.mesh_lengths[axis];
    if (!length) continue;
    ranks = std::min<Count>(ranks * std::max(1, *length), std::numeric_limits<int>::max());
    if (axis == entry.free_axis) is_free = false;
  }
  const Count least = is_free ? entry.default_ranks() : 1;
  return static_cast<int>((least + ranks - 1) / ranks * ranks);
}

const TechniqueEntry& technique(std::string_view name) {
  const auto found = std::ranges::find(techniques(), name, &TechniqueEntry::name);
  if (found != techniques().end()) return *found;
  std::vector<std::string_view> known;
  for (const TechniqueEntry& entry : techniques()) known.push_back(entry.name);
  throw Error(ErrorKind::bad_input, fmt::format("unknown technique '{}'", name),
              {.hint = fmt::format("choose one of {}", fmt::join(known, ", "))});
}

bool Plan::has_pipeline() const { return lockstep::technique(technique()).has_pipeline; }
bool Plan::has_servers() const { return lockstep::technique(technique()).has_servers; }
bool Plan::is_reference() const { return lockstep::technique(technique()).is_reference; }

int Plan::zero_stage() const {
  const TechniqueEntry& entry = lockstep::technique(technique());
  return entry.chooses_zero_stage ? options.zero_stage.value_or(entry.zero_stage)
                                  : entry.zero_stage;
}

}  // namespace lockstep
