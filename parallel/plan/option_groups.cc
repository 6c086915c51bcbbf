// The options that every plan has, and the list of all groups.
#include <algorithm>

#include "parallel/plan/options.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

constexpr Bounds at_least(double least) { return {.least = least}; }
constexpr Bounds fraction{.least = 0, .below = 1};

}  // namespace

OptionGroup describe(InputOptions& o) {
  return {
      .title = "model and data",
      .techniques = {},
      .options = {{"model", &o.model,
                   "nano, nano-moe, small, gpt2, gpt3, or a config.json or its folder; default: "
                   "nano, or the "
                   "model of an --init folder"},
                  {"init", &o.init,
                   "weights to start from: a .safetensors file, the index of sharded ones, or a "
                   "folder with either and config.json"},
                  {"data", &o.data,
                   "text or token files: FILE, a pattern such as 'train_*.bin', or several "
                   "separated by commas; uint16:, uint32: or text: before them names the type of "
                   "files that have no header, such as nanoGPT's; default: the source text of "
                   "this program"},
                  {.flag = "documents",
                   .value = &o.documents,
                   .help = "restrict attention to documents; the last token of each has no target. "
                           "Documents end after an empty line in a text, and before the "
                           "token 50256 (of 32 bits: 128000) of a token file",
                   .drawn = {"false", "true"}},
                  {.flag = "order",
                   .value = &o.order,
                   .help = "order of sequences: random or sequential",
                   .choices = {"random", "sequential"},
                   .drawn = {"random", "sequential"}},
                  {.flag = "seed",
                   .value = &o.seed,
                   .help = "of weights, data order and dropout",
                   .drawn = {"1", "7", "18446744073709551615"}}}};
}

OptionGroup describe(BatchOptions& o) {
  return {.title = "batch",
          .techniques = {},
          .options = {{.flag = "global-batch",
                       .value = &o.global_batch,
                       .help = "sequences of a step, over all ranks",
                       .bounds = at_least(1)},
                      {.flag = "micro-batches",
                       .value = &o.micro_batches,
                       .help = "micro-batches per rank and step",
                       .bounds = at_least(1),
                       .drawn = {"1", "2", "3", "4", "6", "8"}},
                      {.flag = "sequence-length",
                       .value = &o.sequence_length,
                       .help = "tokens of a sequence; 0: the model's context",
                       .bounds = at_least(0)},
                      {.flag = "validation-fraction",
                       .value = &o.validation_fraction,
                       .help = "fraction of the data held out for validation, taken from the end",
                       .bounds = fraction,
                       .drawn = {"0", "0.02"}}}};
}

OptionGroup describe(PrecisionOptions& o) {
  const auto scales = [](const TrainOptions& all) { return loss_scaling(all) != "none"; };
  return {.title = "precision",
          .techniques = {},
          .options = {
              {.flag = "dtype",
               .value = &o.dtype,
               .help = "type of parameters, activations and gradients: f32, f64, bf16 or f16; "
                       "16-bit types accumulate in f32, and the optimizer keeps f32 master weights",
               // Mistakes show most clearly in f64.
               .drawn = {"f64", "f64", "f64", "f64", "f64", "f32", "bf16", "f16"}},
              {.flag = "loss-scaling",
               .value = &o.loss_scaling,
               .help = "rule that lowers and raises the loss scale: torch, megatron, "
                       "deepspeed, or none; default: torch for f16, else none",
               .choices = {"", "none", "torch", "megatron", "deepspeed"},
               .drawn = {"", "", "none", "torch", "megatron", "deepspeed"}},
              {.flag = "initial-loss-scale",
               .value = &o.initial_loss_scale,
               .help = "its first scale; default, 0: the rule's, 65536 or megatron's 2^32",
               .bounds = at_least(0),
               .drawn = {"1024", "65536", "1048576", "4194304"},
               .has_effect = scales,
               .needs = "--loss-scaling other than none"},
              {.flag = "loss-scale-window",
               .value = &o.loss_scale_window,
               .help = "steps without overflow after which it doubles; default, 0: the rule's, "
                       "torch's 2000 or 1000",
               .bounds = at_least(0),
               .drawn = {"1", "2", "1000"},
               .has_effect = scales,
               .needs = "--loss-scaling other than none"}}};
}

OptionGroup describe(RegularizationOptions& o) {
  return {.title = "regularization",
          .techniques = {},
          .options = {
              {.flag = "dropout",
               .value = &o.dropout,
               .help = "fraction of activations dropped after the embedding, of the attention's "
                       "probabilities, and after each branch; default: the model's "
                       "(embd_pdrop, attn_pdrop and resid_pdrop), 0 of a preset",
               .bounds = fraction,
               .drawn = {"0", "0.1"}},
              {.flag = "dropout-streams",
               .value = &o.dropout_streams,
               .help = "place: what is dropped depends only on its place in the model and batch, "
                       "so any number of ranks drops the same; megatron: random streams of "
                       "each rank's own where ranks split the work",
               .choices = {"place", "megatron"},
               .drawn = {"place", "place", "megatron"},
               .has_effect = [](const TrainOptions& all) { return all.dropout.value_or(0) > 0; },
               .needs = "--dropout above 0"},
              {.flag = "label-smoothing",
               .value = &o.label_smoothing,
               .help = "probability moved from each target to the other tokens, in equal shares",
               .bounds = fraction,
               .drawn = {"0", "0.1"}}}};
}

OptionGroup describe(RecomputeOptions& o) {
  return {.title = "recomputation",
          .techniques = {},
          .options = {{.flag = "recompute",
                       .value = &o.recompute,
                       .help = "what backward computes again instead of keeping: none, selective "
                               "(the attention) or full (every layer from its input; with pipeline "
                               "stages every stage)",
                       .drawn = {"none", "selective", "full"}}}};
}

OptionGroup describe(CheckpointOptions& o) {
  const auto writes = [](const TrainOptions& all) { return !all.checkpoint.empty(); };
  constexpr const char* folder = "--checkpoint DIR";
  return {
      .title = "checkpoints",
      .techniques = {},
      .options = {{.flag = "checkpoint",
                   .value = &o.checkpoint,
                   .help = "write checkpoints to this folder, at an interval and at the end; "
                           "sets aside later ones of another branch",
                   .has_effect = writes},
                  {.flag = "checkpoint-interval",
                   .value = &o.checkpoint_interval,
                   .help = "steps between checkpoints; 0: after the last step only",
                   .bounds = at_least(0),
                   .drawn = {"0", "1"},
                   .has_effect = writes,
                   .needs = folder},
                  {.flag = "keep",
                   .value = &o.keep,
                   .help = "keep only this many checkpoints of this branch, the newest; 0: all",
                   .bounds = at_least(0),
                   .drawn = {"0", "1", "2"},
                   .has_effect = writes,
                   .needs = folder},
                  {.flag = "checkpoint-async",
                   .value = &o.checkpoint_async,
                   .help =
                       "write in the background, from a copy in memory, while training continues",
                   .drawn = {"false", "true"},
                   .has_effect = writes,
                   .needs = folder},
                  {.flag = "resume",
                   .value = &o.resume,
                   .help = "resume from the newest complete checkpoint in this folder, or from "
                           "this checkpoint; any plan can read it; --init is ignored, but for "
                           "--lora",
                   .has_effect = [](const TrainOptions& all) { return !all.resume.empty(); }}},
      .is_of_run = true};
}

OptionGroup describe(RunOptions& o) {
  return {
      .title = "run",
      .techniques = {},
      .options =
          {{.flag = "steps", .value = &o.steps, .help = "optimizer steps", .bounds = at_least(1)},
           {.flag = "eval-interval",
            .value = &o.eval_interval,
            .help = "steps between validations; 0: at the end only",
            .bounds = at_least(0),
            .drawn = {"0", "1", "2"},
            .has_effect = [](const TrainOptions& all) { return all.validation_fraction > 0; },
            .needs = "--validation-fraction above 0"},
           {.flag = "threads",
            .value = &o.threads,
            .help = "threads per rank; 0: cores divided by ranks, or 1 under a virtual clock",
            .bounds = at_least(0)},
           {.flag = "slow-rank",
            .value = &o.slow_ranks,
            .help = "RANK:FACTOR: computing takes FACTOR times as long on this rank; repeatable",
            .key = "slow_ranks"},
           {.flag = "compute-time",
            .value = &o.compute_seconds,
            .help = "with --clock unit: time for forward and backward of a rank's part of a step",
            .bounds = at_least(0)},
           {"save", &o.save, "write the final weights (safetensors) to this file"},
           {.flag = "save-adapters",
            .value = &o.save_adapters,
            .help = "write the final adapters to this new folder, for the library peft",
            .has_effect = [](const TrainOptions& all) { return all.lora_rank > 0; },
            .needs = "adapters: --lora R above 0"},
           {.flag = "sample",
            .value = &o.sample,
            .help = "write that many tokens of text after training",
            .bounds = at_least(0)},
           {.flag = "prompt",
            .value = &o.prompt,
            .help = "what the text begins with",
            .has_effect = [](const TrainOptions& all) { return all.sample > 0; },
            .needs = "--sample above 0"}},
      .is_of_run = true};
}

bool OptionGroup::belongs_to(std::string_view technique) const {
  const std::string_view whole = lockstep::technique(technique).preset_of;
  return techniques.empty() ||
         std::ranges::count(techniques, whole.empty() ? technique : whole) > 0;
}

std::vector<OptionGroup> describe(TrainOptions& o) {
  return {describe(static_cast<InputOptions&>(o)),
          describe(static_cast<BatchOptions&>(o)),
          describe(static_cast<PrecisionOptions&>(o)),
          describe(static_cast<RegularizationOptions&>(o)),
          describe(static_cast<RecomputeOptions&>(o)),
          describe(static_cast<OptimizerOptions&>(o)),
          describe(static_cast<LoraOptions&>(o)),
          describe_tensor_axis(o),
          describe_context_axis(o),
          describe_expert_axis(o),
          describe(static_cast<MeshOptions&>(o)),
          describe(static_cast<TensorOptions&>(o)),
          describe_layout(o),
          describe_groups(o),
          describe_ring(o),
          describe(static_cast<PipelineOptions&>(o)),
          describe(static_cast<DataParallelOptions&>(o)),
          describe_buckets(o),
          describe(static_cast<LocalStepOptions&>(o)),
          describe_zero(o),
          describe_mesh_zero(o),
          describe(static_cast<ShardingOptions&>(o)),
          describe(static_cast<OffloadOptions&>(o)),
          describe_offload_tier(o),
          describe(static_cast<ParameterServerOptions&>(o)),
          describe(static_cast<ExpertOptions&>(o)),
          describe(static_cast<CheckpointOptions&>(o)),
          describe(static_cast<RunOptions&>(o))};
}

}  // namespace lockstep
