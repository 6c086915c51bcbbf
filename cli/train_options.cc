#include "cli/train_options.h"

#include <fmt/format.h>

#include "collectives/all_reduce/all_reduce.h"
#include "parallel/pipeline/schedules.h"

namespace lockstep {
namespace {

void add_run_options(CLI::App& app, TrainCommand& c) {
  c.world.add(app);
  app.add_option("--device", c.device,
                 "host, or cuda: a card for each rank, over NCCL, where there are so many, else "
                 "one for all")
      ->capture_default_str();
  app.add_option(
      "--threads", c.options.threads,
      "threads of each rank; 0: the cores divided by the ranks, under a virtual clock 1");
  app.add_option("--slow-rank", c.slow_ranks,
                 "RANK:FACTOR: this rank computes that many times longer; may be given again");
  app.add_option("--compute-time", c.options.compute_seconds,
                 "under the clock unit: what forward and backward of a rank's part of a step take");
  app.add_option("--json", c.json, "write the result to this file");
  app.add_option("--trace", c.trace, "write a trace for ui.perfetto.dev to this file");
  app.add_option("--save", c.options.save, "write the final weights (safetensors) to this file");
  app.add_option("--sample", c.options.sample, "write that many tokens of text after training");
  app.add_option("--prompt", c.options.prompt, "what the text begins with");
}

void add_model_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--model", o.model, "nano, small, gpt2, or a config.json")->capture_default_str();
  app.add_option("--init", o.init, "weights to start from (safetensors)");
  app.add_option("--data", o.data, "text or token file; default: the source text of this program");
  app.add_option("--order", o.order, "random or sequential")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights and data order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--dtype", c.dtype,
                 "of parameters, activations and gradients: f32, f64, bf16 or f16; 16 bits are "
                 "computed with in f32, and AdamW keeps f32 weights")
      ->capture_default_str();
  app.add_option(
      "--loss-scaling", o.loss_scaling,
      "when the scale of the loss falls and grows: as torch, megatron or deepspeed do, or "
      "none; default: torch for f16, else none");
  app.add_option("--dropout", o.dropout,
                 "share of activations that are dropped behind the embedding, the attention's "
                 "probabilities and every branch");
  app.add_option("--dropout-streams", o.dropout_streams,
                 "place: what is dropped depends on its place in the model and the batch, so it is "
                 "the same on any ranks; megatron: streams of the ranks' own where they split it")
      ->capture_default_str();
  app.add_option("--label-smoothing", o.label_smoothing,
                 "share of every target that the other tokens share");
  app.add_option("--recompute", o.recompute,
                 "what is made again for backward instead of kept: none, selective (the attention) "
                 "or full (every layer from its input; of a pipeline every stage)")
      ->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "sequences of a step, over all ranks")
      ->capture_default_str();
  app.add_option("--micro-batches", o.micro_batches, "parts of a rank's share, one after another")
      ->capture_default_str();
  app.add_option("--sequence-length", o.sequence_length,
                 "tokens of a sequence; 0: the model's context");
  app.add_option("--validation-fraction", o.validation_fraction,
                 "share at the end of the data held out");
  app.add_option("--eval-interval", o.eval_interval,
                 "steps between validations; 0: at the end only");
}

void add_optimizer_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--steps", o.steps, "optimizer steps")->capture_default_str();
  app.add_option("--lr", o.learning_rate, "highest learning rate")->capture_default_str();
  app.add_option("--warmup-steps", o.warmup_steps, "steps of linear warm-up")
      ->capture_default_str();
  app.add_option("--min-lr", o.minimum_learning_rate, "fall to this along a cosine; default: stay");
  app.add_option("--weight-decay", o.weight_decay)->capture_default_str();
  app.add_option("--grad-clip", o.grad_clip, "largest gradient norm; 0: any")
      ->capture_default_str();
  app.add_option("--beta1", o.beta1)->capture_default_str();
  app.add_option("--beta2", o.beta2)->capture_default_str();
  app.add_option("--eps", o.eps)->capture_default_str();
}

std::string all_reduce_names() {
  std::string names;
  for (const AllReduceAlgorithm& entry : all_reduce_algorithms())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return names;
}

void add_ddp_options(CLI::App& app, TrainCommand& c) {
  app.add_option("--algorithm", c.options.algorithm,
                 fmt::format("of the all-reduce: {}, or auto", all_reduce_names()))
      ->capture_default_str();
  app.add_option(
      "--reduce-dtype", c.reduce_dtype,
      "f64, f32, bf16 or f16: what gradients are rounded to for the all-reduce; default: "
      "their own type");
  app.add_flag("--no-overlap", c.no_overlap, "all-reduce after backward instead of beside it");
  app.add_option("--first-bucket-bytes", c.options.first_bucket_bytes)->capture_default_str();
  app.add_option("--bucket-bytes", c.options.bucket_bytes)->capture_default_str();
}

void add_ps_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--servers", o.servers, "ranks that are servers; the others are workers")
      ->capture_default_str();
  app.add_flag("--colocated", o.colocated, "a server beside every worker instead");
  app.add_option("--mode", o.mode,
                 "bsp: all workers in step; asp: none waits for another; ssp: none is more than "
                 "--staleness steps ahead")
      ->capture_default_str();
  app.add_option("--staleness", o.staleness)->capture_default_str();
}

void add_pipeline_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  std::string names;
  for (const ScheduleEntry& entry : schedules())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  app.add_option("--schedule", o.schedule, names)->capture_default_str();
  app.add_option("--schedule-file", o.schedule_file,
                 "a schedule in PyTorch's action text instead: a line for every rank");
  app.add_option("--chunks", o.chunks, "stages on every rank; 0: what the schedule has, or 2");
  app.add_option("--group-size", o.group_size,
                 "of interleaved: micro-batches that pass a stage in turn; 0: as many as ranks");
}

void add_tensor_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--tp", o.tensor_ranks,
                 "ranks that split every layer; 0: all there are, or 1 in 3d");
  app.add_flag("--sequence-parallel", o.sequence_parallel,
               "split the sequence over them, too, where layers are not split");
  app.add_flag(
      "--keep-gathered", o.keep_gathered,
      "with it: keep what a layer has gathered instead of gathering it again for backward");
  app.add_flag("--tp-overlap", o.tensor_overlap,
               "exchange rows beside the products of others, in ring steps; without "
               "--sequence-parallel: gradients beside the products for the weights");
  app.add_option("--make-vocab-size-divisible-by", o.vocabulary_multiple,
                 "each of them has a multiple of it of the vocabulary; the rest is padding")
      ->capture_default_str();
}

void add_mesh_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--pp", o.pipeline_ranks, "ranks of a pipeline")->capture_default_str();
  app.add_option("--dp", o.data_ranks, "models side by side; 0: as many as the ranks make");
  app.add_option("--mesh-order", o.mesh_order, "axes, the one of neighbouring ranks first")
      ->capture_default_str();
}

}  // namespace

void add_train_options(CLI::App& app, TrainCommand& c) {
  const std::string& technique = c.options.technique;
  add_run_options(app, c);
  add_model_options(app, c);
  add_optimizer_options(app, c);
  if (technique == "ddp") add_ddp_options(app, c);
  if (technique == "ps") add_ps_options(app, c);
  if (technique == "pipeline" || technique == "3d") add_pipeline_options(app, c);
  if (technique == "tp" || technique == "sp" || technique == "3d") add_tensor_options(app, c);
  if (technique == "3d") add_mesh_options(app, c);
}

}  // namespace lockstep
