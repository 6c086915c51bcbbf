// The descriptions of the options of ZeRO and FSDP, and of what they offload.
#include "parallel/plan/options.h"

namespace lockstep {
namespace {

constexpr const char* zero_help =
    "ZeRO stage, what is sharded over replicas: 0 nothing, 1 optimizer states, 2 also gradients, 3 "
    "also parameters; default: ";
constexpr Bounds zero_stages = {.least = 0, .below = 4};

bool offloads_shards(const TrainOptions& options) {
  return options.zero_stage >= 1 && options.offload != "none";
}

}  // namespace

OptionGroup describe_zero(ShardingOptions& o) {
  return {.title = "ZeRO",
          .techniques = {"zero"},
          .options = {{.flag = "stage",
                       .value = &o.zero_stage,
                       .help = std::string(zero_help) + "1",
                       .bounds = zero_stages,
                       .key = "zero_stage",
                       .drawn = {"0", "1", "2", "3"}}}};
}

OptionGroup describe_mesh_zero(ShardingOptions& o) {
  return {.title = "ZeRO",
          .techniques = {"3d"},
          .options = {{.flag = "zero",
                       .value = &o.zero_stage,
                       .help = std::string(zero_help) + "0",
                       .bounds = zero_stages,
                       .drawn = {"0", "1", "2", "3"}}}};
}

OptionGroup describe(ShardingOptions& o) {
  // A pipeline gathers whole stages, and reduces gradients once per step.
  const auto without_pipeline = [](const TrainOptions& all) {
    return all.mesh_lengths[Axis::pp].value_or(1) == 1;
  };
  const auto shards_parameters = [=](const TrainOptions& all) {
    return all.zero_stage == 3 && without_pipeline(all);
  };
  const auto gathers_again = [=](const TrainOptions& all) {
    return shards_parameters(all) && all.reshard_after_forward != "no";
  };
  return {
      .title = "sharding",
      .techniques = {"zero", "fsdp", "3d"},
      .options = {
          {.flag = "replicas",
           .value = &o.replicas,
           .help = "hybrid sharding: groups of neighbouring ranks that each hold all shards; "
                   "gradients are summed between the groups once a step",
           .bounds = Bounds{.least = 1},
           .drawn = {"1", "2"},
           .has_effect = [](const TrainOptions& all) { return all.zero_stage >= 1; }},
          {.flag = "zero-volume",
           .value = &o.zero_volume,
           .help = "how stages 1 and 2 sum gradients: paper (reduce-scatter) or all-reduce, which "
                   "sends 1.5 times as much in total",
           .choices = {"paper", "all-reduce"},
           .drawn = {"paper", "all-reduce"},
           .has_effect =
               [](const TrainOptions& all) { return all.zero_stage == 1 || all.zero_stage == 2; },
           .needs = "ZeRO stage 1 or 2"},
          {.flag = "gather",
           .value = &o.gather,
           .help = "how parameters are compressed while ranks gather them (ZeRO++'s qwZ): whole, "
                   "not at all; int8, in blocks with one scale each; mxfp8, 8-bit floating point "
                   "numbers in blocks with one power of two each; optimizers keep whole ones",
           .choices = {"whole", "int8", "mxfp8"},
           .has_effect = [](const TrainOptions& all) { return all.zero_stage == 3; },
           .needs = "ZeRO stage 3 or fsdp"},
          {.flag = "sharding",
           .value = &o.sharding,
           .help = "how parameters are sharded: flat (a unit's parameters concatenated and cut "
                   "evenly) or "
                   "per-parameter (each is split along its first dimension, as in FSDP2)",
           .choices = {"flat", "per-parameter"},
           .drawn = {"flat", "per-parameter"},
           .has_effect = [](const TrainOptions& all) { return all.zero_stage == 3; },
           .needs = "ZeRO stage 3"},
          {.flag = "prefetch",
           .value = &o.prefetch,
           .help = "when backward gathers the next block's parameters: before the current "
                   "block's pass (backward-pre), after it (backward-post), or when needed",
           .choices = {"none", "backward-pre", "backward-post"},
           .drawn = {"none", "backward-pre", "backward-post"},
           .has_effect = shards_parameters,
           .needs = "ZeRO stage 3 without a pipeline"},
          {.flag = "prefetch-last-block",
           .value = &o.prefetch_last_block,
           .help = "with backward-post: gather the last block's parameters before the head's "
                   "backward pass; without this flag it is gathered only when needed, because no "
                   "block precedes it",
           .drawn = {"false", "true"},
           .has_effect =
               [=](const TrainOptions& all) {
                 return gathers_again(all) && all.prefetch == "backward-post";
               },
           .needs = "--prefetch backward-post, and parameters gathered again for backward"},
          {.flag = "limit-all-gathers",
           .value = &o.limit_all_gathers,
           .help = "maximum number of blocks gathered at once: prefetching waits until a block is "
                   "freed; 0: no limit",
           .bounds = Bounds{.least = 0},
           .drawn = {"0", "1", "2"},
           .has_effect = gathers_again,
           .needs = "ZeRO stage 3 without a pipeline, and blocks freed after forward"},
          {.flag = "forward-prefetch",
           .value = &o.forward_prefetch,
           .help = "gather the next block's parameters before the current block's forward pass",
           .drawn = {"false", "true"},
           .has_effect = shards_parameters,
           .needs = "ZeRO stage 3 without a pipeline"},
          {.flag = "reshard-after-forward",
           .value = &o.reshard_after_forward,
           .help = "free a block's parameters after its forward pass and gather them again for "
                   "backward: yes, no, or a number of neighbouring ranks that then keep all shards "
                   "among themselves (ZeRO++'s hpZ)",
           .drawn = {"yes", "no", "2"},
           .has_effect = shards_parameters,
           .needs = "ZeRO stage 3 without a pipeline"},
          {.flag = "accumulation",
           .value = &o.accumulation,
           .help = "with several micro-batches: reduce the gradients of each (sync), or accumulate "
                   "them unsharded and reduce the sum (no-sync)",
           .choices = {"sync", "no-sync"},
           .drawn = {"sync", "no-sync"},
           .has_effect =
               [=](const TrainOptions& all) {
                 return all.zero_stage >= 2 && all.micro_batches > 1 && without_pipeline(all);
               },
           .needs = "ZeRO stage 2 or 3, --micro-batches above 1, and no pipeline"}}};
}

OptionGroup describe_offload_tier(OffloadOptions& o) {
  return {.title = "offload",
          .techniques = {"zero", "fsdp", "tp", "3d"},
          .options = {{.flag = "offload-to",
                       .value = &o.offload_to,
                       .help = "where offloaded data go: memory (the host's, for ranks on a GPU) "
                               "or a file path, to which each rank appends its number; the file is "
                               "unlinked while open, so nothing remains when the run ends",
                       .drawn = {"memory", "tier"},
                       .has_effect =
                           [](const TrainOptions& all) {
                             return offloads_shards(all) ||
                                    (all.offload_activations && partitions_activations(all));
                           },
                       .needs = "--offload optimizer or parameters, or --offload-activations"}}};
}

OptionGroup describe(OffloadOptions& o) {
  return {.title = "offload",
          .techniques = {"zero", "fsdp", "3d"},
          .options = {
              {.flag = "offload",
               .value = &o.offload,
               .help = "keep in a second tier of memory: none, the optimizer's states (optimizer), "
                       "or with stage 3 also the shards of parameters (parameters)",
               .choices = {"none", "optimizer", "parameters"},
               .drawn = {"none", "optimizer", "parameters"},
               .has_effect = [](const TrainOptions& all) { return all.zero_stage >= 1; },
               .needs = "ZeRO stage 1, 2 or 3"},
              {.flag = "offload-group",
               .value = &o.offload_group,
               .help = "elements per group whose states are read, updated and written together, a "
                       "multiple of 4096; two groups are in memory at a time",
               .bounds = Bounds{.least = 1},
               .drawn = {"4096", "262144"},
               .has_effect = offloads_shards,
               .needs = "--offload optimizer or parameters"}}};
}

}  // namespace lockstep
