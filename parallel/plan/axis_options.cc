// The descriptions of options that belong to one axis of the mesh, or to parameter servers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/operations/operations.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/plan/options.h"

namespace lockstep {
namespace {

constexpr Bounds at_least(double least) { return {.least = least}; }

template <typename Entries>
std::vector<std::string> names_of(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.emplace_back(entry.name);
  return names;
}

// The length of an axis.
Option length_option(MeshOptions& o, Axis axis, std::string_view by_default) {
  return {.flag = std::string(name_of(axis)),
          .value = &o.mesh_lengths[axis],
          .help = fmt::format("{}; default: {}", entry_of(axis).ranks, by_default),
          .bounds = at_least(1),
          .drawn = {"1", "2", "4"}};
}

}  // namespace

OptionGroup describe_tensor_axis(MeshOptions& o) {
  return {.title = "tensor-parallel axis",
          .techniques = {"tp", "sp", "3d"},
          .options = {length_option(o, Axis::tp, "all ranks, in 3d 1")}};
}

OptionGroup describe(MeshOptions& o) {
  OptionGroup group{.title = "mesh", .techniques = {"3d"}, .options = {}};
  for (const Axis axis : axes())
    if (axis != Axis::tp && axis != Axis::cp && axis != Axis::dp)
      group.options.push_back(length_option(o, axis, "1"));
  Option replicas = length_option(o, Axis::dp, "--ranks divided by the other axes");
  replicas.drawn = {"1", "2", "3", "4"};
  group.options.push_back(std::move(replicas));
  group.options.push_back({.flag = "mesh-order",
                           .value = &o.mesh_order,
                           .help = "order of the axes, fastest first: neighbours along the first "
                                   "axis are consecutive ranks",
                           .drawn = {"tp-cp-dp-pp", "tp-pp-dp", "pp-cp-dp-tp", "dp-tp-pp-cp"}});
  return group;
}

OptionGroup describe(DataParallelOptions& o) {
  const auto names = [](const char* collective) {
    return fmt::format("{} ({})", collective,
                       fmt::join(names_of(find_operation(collective).algorithms), ", "));
  };
  return {
      .title = "data parallelism",
      .techniques = {"ddp", "zero", "fsdp", "ring-attention", "ulysses", "cp", "3d"},
      .options = {
          {.flag = "reduce-dtype",
           .value = &o.reduce_dtype,
           .help = "type to which gradients are rounded for the sum over replicas: "
                   "f64, f32, bf16 or f16; default: their own type",
           .drawn = {"", "", "", "f32", "bf16"}},
          {.flag = "exchange",
           .value = &o.exchange,
           .help = "how replicas compress the gradients that they exchange: none; bf16, "
                   "as --reduce-dtype bf16; " +
                   exchange_summaries()},
          {.flag = "exchange-warm-up",
           .value = &o.exchange_warm_up,
           .help = "optimizer steps at the beginning that sum gradients as they are",
           .bounds = at_least(0),
           .has_effect = [](const TrainOptions& all) { return compresses(all); },
           .needs = "compressed gradients: --exchange onebit, or another method"},
          {.flag = "overlap",
           .value = &o.overlap,
           .help = "communicate between passes instead of overlapping with them",
           .drawn = {"true", "false"}},
          // Every text has a name for each collective, and so is valid in every plan.
          {.flag = "algorithm",
           .value = &o.algorithm,
           .help = fmt::format("how replicas exchange gradients, {}, and with sharding {}, and "
                               "parameters, {}: a name that these collectives have, or auto, which "
                               "chooses for each exchange; or several names joined by '+': each "
                               "collective takes the first that it has, as in pairwise+bruck",
                               names("all_reduce"), names("reduce_scatter"), names("all_gather")),
           .drawn = {"ring", "segmented_ring+pairwise+bruck", "bidirectional_ring+auto",
                     "bruck+recursive_doubling+pairwise", "binomial_tree+bruck+ring",
                     "double_binary_tree+pairwise+ring", "linear+ring"}}}};
}

OptionGroup describe_buckets(DataParallelOptions& o) {
  const auto without_sharding = [](const TrainOptions& all) {
    return all.zero_stage.value_or(0) == 0 && !all.local_steps;
  };
  return {
      .title = "buckets of gradients",
      .techniques = {"ddp", "zero", "ring-attention", "ulysses", "cp", "3d"},
      .options = {{.flag = "first-bucket-bytes",
                   .value = &o.first_bucket_bytes,
                   .help = "size of the first gradient bucket, in bytes",
                   .bounds = at_least(1),
                   .drawn = {"1", "20000", "1048576"},
                   .has_effect = without_sharding,
                   .needs = "replicas without sharding, ZeRO stage 0, and without --local-steps"},
                  {.flag = "bucket-bytes",
                   .value = &o.bucket_bytes,
                   .help = "size of each later gradient bucket, in bytes",
                   .bounds = at_least(1),
                   .drawn = {"1", "50000", "26214400"},
                   .has_effect = without_sharding,
                   .needs = "replicas without sharding, ZeRO stage 0, and without --local-steps"}}};
}

OptionGroup describe(PipelineOptions& o) {
  const std::vector<std::string> names = names_of(schedules());
  const auto from_menu = [](const TrainOptions& all) { return all.schedule_file.empty(); };
  return {
      .title = "pipeline",
      .techniques = {"pipeline", "3d"},
      .options = {
          {.flag = "schedule",
           .value = &o.schedule,
           .help = fmt::format("{}", fmt::join(names, ", ")),
           .drawn = names,
           .has_effect = from_menu,
           .needs = "a schedule of this list, without --schedule-file"},
          {.flag = "schedule-file",
           .value = &o.schedule_file,
           .help =
               "read the schedule from this file instead: PyTorch's action text, one line per rank",
           .has_effect = [](const TrainOptions& all) { return !all.schedule_file.empty(); }},
          {.flag = "virtual-stages",
           .value = &o.virtual_stages,
           .help = "stages per rank; 0: the schedule's own number, or 2 if it leaves that open",
           .bounds = at_least(0),
           .alias = "chunks",
           .key = "chunks"},
          {.flag = "group-size",
           .value = &o.group_size,
           .help = "for interleaved: consecutive micro-batches per stage before the rank switches "
                   "stages; 0: the number of ranks",
           .bounds = at_least(0),
           .has_effect =
               [](const TrainOptions& all) {
                 return all.schedule_file.empty() && all.schedule == "interleaved";
               },
           .needs = "--schedule interleaved"}}};
}

OptionGroup describe(TensorOptions& o) {
  return {
      .title = "tensor parallelism",
      .techniques = {"tp", "sp", "3d"},
      .options = {
          {.flag = "sequence-parallel",
           .value = &o.sequence_parallel,
           .help = "also split the sequence where layers are not split: layer norms, dropout, "
                   "residuals",
           .drawn = {"false", "true"}},
          {.flag = "keep-gathered",
           .value = &o.keep_gathered,
           .help = "with --sequence-parallel: keep gathered inputs for backward instead of "
                   "gathering them again",
           .drawn = {"false", "true"},
           .has_effect = [](const TrainOptions& all) { return all.sequence_parallel; },
           .needs = "--sequence-parallel"},
          {.flag = "tp-overlap",
           .value = &o.tensor_overlap,
           .help =
               "exchange rows in ring steps while multiplying the rows that are already there; "
               "without --sequence-parallel: sum input gradients while computing weight gradients",
           .drawn = {"false", "true"}},
          {.flag = "partition-activations",
           .value = &o.partition_activations,
           .help = "each rank keeps only a part of the inputs that full recomputation needs, "
                   "and gathers the others' parts again for backward (ZeRO-R's Pa)",
           .drawn = {"false", "true"},
           .has_effect = partitions_activations,
           .needs = "--recompute full and ranks that split layers, without "
                    "--sequence-parallel, which splits these inputs already"},
          {.flag = "offload-activations",
           .value = &o.offload_activations,
           .help = "keep these parts in the tier that --offload-to names (ZeRO-R's Pa+cpu)",
           .drawn = {"false", "true"},
           .has_effect =
               [](const TrainOptions& all) {
                 return all.offload_activations && partitions_activations(all);
               },
           .needs = "--partition-activations"},
          {.flag = "make-vocab-size-divisible-by",
           .value = &o.vocabulary_multiple,
           .help = "pad the vocabulary so that each tensor-parallel rank has a multiple of this "
                   "many tokens",
           .bounds = at_least(1),
           .drawn = {"1", "16"},
           .has_effect =
               [](const TrainOptions& all) { return all.mesh_lengths[Axis::tp].value_or(1) > 1; },
           .needs = "several ranks that split layers"}}};
}

OptionGroup describe_context_axis(MeshOptions& o) {
  return {.title = "context-parallel axis",
          .techniques = {"3d"},
          .options = {length_option(o, Axis::cp, "1")}};
}

OptionGroup describe_layout(ContextOptions& o) {
  return {.title = "context parallelism",
          .techniques = {"cp", "ring-attention", "3d"},
          .options = {{.flag = "layout",
                       .value = &o.layout,
                       .help = "which tokens of a sequence a rank has: contiguous, zig-zag, "
                               "striped, or balanced (striped, with the documents of each "
                               "sequence in an order that gives ranks equal work)",
                       .choices = {"contiguous", "zig-zag", "striped", "balanced"},
                       .drawn = {"contiguous", "zig-zag", "striped", "balanced"},
                       .has_effect =
                           [](const TrainOptions& all) {
                             return all.mesh_lengths[Axis::cp].value_or(1) >
                                    all.ulysses_ranks.value_or(1);
                           },
                       .needs = "several ranks along cp, in groups smaller than all of them"}}};
}

OptionGroup describe_groups(ContextOptions& o) {
  const auto has_context = [](const TrainOptions& all) {
    return all.mesh_lengths[Axis::cp].value_or(1) > 1;
  };
  return {.title = "groups of context-parallel ranks",
          .techniques = {"cp", "3d"},
          .options = {{.flag = "ulysses",
                       .value = &o.ulysses_ranks,
                       .help = "group size: neighbouring ranks that exchange tokens for heads "
                               "(Ulysses); default: 1",
                       .bounds = at_least(1),
                       .drawn = {"1", "2", "4"},
                       .has_effect = has_context,
                       .needs = "several ranks along cp"},
                      {.flag = "ring",
                       .value = &o.ring_ranks,
                       .help = "number of these groups, if they form a ring; default: the groups "
                               "all-gather instead",
                       .bounds = at_least(1),
                       .has_effect = has_context,
                       .needs = "several ranks along cp"}}};
}

OptionGroup describe_ring(ContextOptions& o) {
  return {.title = "ring attention",
          .techniques = {"cp", "ring-attention", "3d"},
          .options = {
              {.flag = "kv-gradient-hops",
               .value = &o.gradient_hops,
               .help = "hops of key and value gradients around a ring of c: c-1, starting at the "
                       "first other rank; or c, starting and ending at home",
               .choices = {"c-1", "c"},
               .drawn = {"c-1", "c"},
               .has_effect = [](const TrainOptions& all) { return all.ring_ranks.value_or(1) > 1; },
               .needs = "a ring: --ring, or train ring-attention"}}};
}

OptionGroup describe(ParameterServerOptions& o) {
  return {.title = "parameter server",
          .techniques = {"ps"},
          .options = {
              {.flag = "servers",
               .value = &o.servers,
               .help = "ranks that are servers; the others are workers",
               .drawn = {"1", "2", "3"},
               .has_effect = [](const TrainOptions& all) { return !all.colocated; },
               .needs = "servers on ranks of their own, without --colocated"},
              {.flag = "colocated",
               .value = &o.colocated,
               .help = "a server on every worker's rank instead",
               .drawn = {"false", "true"}},
              {.flag = "mode",
               .value = &o.mode,
               .help = "bsp: all workers in step; asp: none waits for another; ssp: none is more "
                       "than --staleness steps ahead",
               .choices = {"bsp", "asp", "ssp"}},
              {.flag = "staleness",
               .value = &o.staleness,
               .help = "steps that a worker may be ahead of the slowest",
               .bounds = at_least(0),
               .has_effect = [](const TrainOptions& all) { return all.mode == "ssp"; },
               .needs = "--mode ssp"}}};
}

}  // namespace lockstep
