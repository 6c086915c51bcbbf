// All options of a training run, with the defaults of the command line: one struct for each axis or
// topic, each described once by a describe() function.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"
#include "models/gpt/gpt_stage.h"
#include "models/optimizers/optimizers.h"
#include "models/placement.h"
#include "parallel/plan/option.h"

namespace lockstep {

struct InputOptions {
  std::string model = "nano";  // a preset, or the path of a config.json or its folder
  std::string init;            // initial weights: see weight_files.h; empty: drawn from the seed
  std::string data;            // text or token files: see token_files.h
  bool documents = false;      // attention does not cross their boundaries
  std::string order = "random";
  std::uint64_t seed = 1;
};

struct BatchOptions {
  int global_batch = 12;
  int micro_batches = 1;    // per rank and step
  int sequence_length = 0;  // 0: the model's context
  double validation_fraction = 0;
};

struct PrecisionOptions {
  DType dtype = DType::f32;
  std::string loss_scaling;  // none, torch, megatron, deepspeed; empty: torch for f16, else none
  double initial_loss_scale = 0;  // 0: the rule's
  int loss_scale_window = 0;      // steps without overflow after which it grows; 0: the rule's
};

struct RegularizationOptions {
  std::optional<double> dropout;          // not given: the model's
  std::string dropout_streams = "place";  // or megatron
  double label_smoothing = 0;
};

struct RecomputeOptions {
  std::string recompute = "none";  // selective: the attention; full: every layer, or stage
};

struct OptimizerOptions {
  double learning_rate = 1e-3;
  int warmup_steps = 0;
  double minimum_learning_rate = -1;  // < 0: constant after the warm-up; else cosine down to this
  double weight_decay = 0.1;
  double grad_clip = 1.0;  // 0: none
  std::string optimizer = OptimizerSettings{}.name;
  bool optimizer_in_backward = false;  // each unit steps as soon as its gradients are complete
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.9;
  double muon_learning_rate = 0.02, muon_momentum = 0.95;
  int galore_rank = OptimizerSettings{}.galore.rank;
  int galore_period = OptimizerSettings{}.galore_period;
  double galore_scale = OptimizerSettings{}.galore_scale;
  std::string galore_projection = OptimizerSettings{}.galore.projection;
};

// Adapters of linear layers, which are trained instead of all weights: see lora_config.h.
struct LoraOptions {
  int lora_rank = 0;                 // 0: all weights are trained
  std::optional<double> lora_alpha;  // not given: that of lora_init, or twice the rank
  std::string lora_targets;          // separated by commas; empty: those of lora_init, or c_attn
  bool rank_stabilized = false;
  double lora_rate_ratio = 1;
  std::optional<double> lora_dropout;  // not given: that of lora_init, or 0
  std::string lora_base = "none";
  std::string lora_init;  // folder of adapters to start from; empty: drawn
};

// Lengths of the axes. Not given: 1, or, for the technique's free axis, the remaining ranks.
struct MeshOptions {
  ByAxis<std::optional<int>> mesh_lengths;
  std::string mesh_order = "tp-cp-dp-pp";

  // The product of the lengths along some axes, 1 where none is given.
  int mesh_ranks(std::span<const Axis> along) const;
};

struct DataParallelOptions {
  std::string algorithm = "ring";     // of exchanges between replicas: see algorithms.h
  std::optional<DType> reduce_dtype;  // type in which gradients are sent; not given: their own
  std::string exchange = "none";      // how they are compressed: see exchange/compressed_sum.h
  int exchange_warm_up = 0;           // first steps, in which they are not
  bool overlap = true;                // all-reduce buckets during backward
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
};

// Steps that replicas take alone: see data/local_steps.h.
struct LocalStepOptions {
  std::optional<int> local_steps;  // between exchanges; not given: replicas sum their gradients
  double outer_learning_rate = 0.7, outer_momentum = 0.9;
  int outer_fragments = 1;
  int outer_delay = 0;  // steps from the start of an exchange to its outer step
  double outer_mix = 0;
};

// Whether replicas send fewer bytes than their gradients have, not merely another type.
bool compresses(const DataParallelOptions& options);

// Options of ZeRO and FSDP.
struct ShardingOptions {
  // 0: nothing is sharded; 1 optimizer, 2 gradients, 3 parameters. Not given: 1, in 3d 0.
  std::optional<int> zero_stage;
  int replicas = 1;                   // hybrid sharding: groups of ranks that each hold all shards
  std::string zero_volume = "paper";  // or all-reduce: stages 1 and 2 send gradients twice
  std::string sharding = "flat";      // or per-parameter: each is split along its first dimension
  std::string gather = "whole";       // parameters; int8, mxfp8: see exchange/compressed_gather.h
  std::string prefetch = "backward-pre";  // none, backward-post
  bool prefetch_last_block = false;  // with backward-post: gather it before the head's backward
  bool forward_prefetch = false;
  int limit_all_gathers = 2;                  // blocks gathered at a time; 0: any number
  std::string reshard_after_forward = "yes";  // no; or the ranks of smaller groups with all shards
  std::string accumulation = "sync";  // of micro-batches; no-sync: reduces the last one's sum only
};

// Where shards of ZeRO and FSDP, and parts of activations, lie while they are not used.
struct OffloadOptions {
  std::string offload = "none";       // optimizer: its states; parameters: also parameter shards
  std::string offload_to = "memory";  // of the host, or the path of a file
  std::int64_t offload_group = std::int64_t{1} << 18;  // elements whose states are in memory
                                                       // together
};

struct PipelineOptions {
  std::string schedule = "1f1b";
  std::string schedule_file;  // a file with a schedule as action text, used instead
  int virtual_stages = 0;     // on every rank; 0: the schedule decides
  int group_size = 0;         // for the schedule interleaved; 0: the number of ranks
};

struct TensorOptions {
  bool sequence_parallel = false;
  bool keep_gathered = false;  // keep gathered inputs for backward
  bool tensor_overlap = false;
  bool partition_activations = false;  // with full recomputation: a part of each kept input
  bool offload_activations = false;    // keep these parts in the tier of OffloadOptions
  int vocabulary_multiple = 1;         // each tensor-parallel rank's rows are a multiple of it
};

// Context parallelism: cp ranks in `ring_ranks` groups of `ulysses_ranks`.
struct ContextOptions {
  std::string layout = "zig-zag";     // how ranks share tokens; or contiguous, striped, balanced
  std::optional<int> ulysses_ranks;   // ranks that exchange tokens for heads; not given: 1
  std::optional<int> ring_ranks;      // not given: an all-gather instead of a ring
  std::string gradient_hops = "c-1";  // around the ring; or c
};

struct ParameterServerOptions {
  int servers = 1;           // among the ranks
  bool colocated = false;    // a server on every worker's rank instead
  std::string mode = "bsp";  // bsp: all workers in step; ssp: at most `staleness` steps apart; asp
  int staleness = 0;
};

// How routers send tokens to experts.
struct ExpertOptions {
  std::optional<int> expert_ranks;  // that divide the experts; not given: 1, or all replicas
  // That split each expert; not given: all tensor-parallel ranks.
  std::optional<int> expert_tensor_ranks;
  std::string token_dispatcher = "all_to_all";  // how rows travel to experts: see dispatcher.h
  std::string router_weights = "source";        // where they multiply; or expert
  bool shared_expert_overlap = false;           // shared experts while rows travel
  bool overlap_pairs = false;                   // passes of two micro-batches while rows travel
  std::string expert_choices = "in_turn";       // without scores: see expert_choices.h
  double router_z_loss = 0;
  int router_groups = 1, router_chosen_groups = 1;
  double expert_capacity = 0;
  std::string token_drop_policy;  // probs or position; empty without a capacity
  double router_bias_rate = 0;
  std::string router_balance_type = "seq_aux_loss";  // or aux_loss or global_aux_loss
};

struct CheckpointOptions {
  std::string checkpoint;       // folder; empty: none are written
  int checkpoint_interval = 0;  // steps; 0: after the last step only
  int keep = 0;                 // the newest; 0: all
  bool checkpoint_async = false;
  std::string resume;  // a folder of checkpoints, or one of them; empty: from the beginning
};

// How a plan is run. Predictions do not depend on it, and a flag overrides a plan file.
struct RunOptions {
  int steps = 100;
  int eval_interval = 0;             // 0: validates after the last step only
  int threads = 0;                   // of each rank; 0: the cores divided by the ranks
  std::map<int, double> slow_ranks;  // slowdown factors of stragglers
  double compute_seconds = 0;        // under the clock unit: time of a rank's part of a step
  std::string save;                  // final weights; empty: none
  std::string save_adapters;         // folder of final adapters; empty: none
  int sample = 0;                    // tokens of text to write after training
  std::string prompt = "\n";
};

struct TrainOptions : InputOptions,
                      BatchOptions,
                      PrecisionOptions,
                      RegularizationOptions,
                      RecomputeOptions,
                      OptimizerOptions,
                      LoraOptions,
                      MeshOptions,
                      DataParallelOptions,
                      LocalStepOptions,
                      ShardingOptions,
                      OffloadOptions,
                      PipelineOptions,
                      TensorOptions,
                      ContextOptions,
                      ParameterServerOptions,
                      ExpertOptions,
                      CheckpointOptions,
                      RunOptions {
  std::string technique = "serial";
};

// The options of one struct, and the techniques whose plans have them (empty: all).
struct OptionGroup {
  std::string_view title;
  std::vector<std::string_view> techniques;
  std::vector<Option> options;
  bool is_of_run = false;      // about the run, not the plan: a flag overrides a plan file
  bool is_drawn_last = false;  // in random plans: what else they draw does not depend on it

  bool belongs_to(std::string_view technique) const;
};
// Bound to the fields of the struct, which must outlive them.
OptionGroup describe(InputOptions& options);
OptionGroup describe(BatchOptions& options);
OptionGroup describe(PrecisionOptions& options);
OptionGroup describe(RegularizationOptions& options);
OptionGroup describe(RecomputeOptions& options);
OptionGroup describe(OptimizerOptions& options);
OptionGroup describe(LoraOptions& options);
OptionGroup describe_tensor_axis(MeshOptions& options);
OptionGroup describe(MeshOptions& options);  // the other axes
OptionGroup describe(DataParallelOptions& options);
OptionGroup describe_buckets(DataParallelOptions& options);
OptionGroup describe(LocalStepOptions& options);
OptionGroup describe(ShardingOptions& options);
OptionGroup describe_zero(ShardingOptions& options);
OptionGroup describe_mesh_zero(ShardingOptions& options);
OptionGroup describe(OffloadOptions& options);
OptionGroup describe_offload_tier(OffloadOptions& options);
OptionGroup describe(PipelineOptions& options);
OptionGroup describe(TensorOptions& options);
OptionGroup describe_context_axis(MeshOptions& options);
OptionGroup describe_layout(ContextOptions& options);
OptionGroup describe_groups(ContextOptions& options);
OptionGroup describe_ring(ContextOptions& options);
OptionGroup describe(ParameterServerOptions& options);
OptionGroup describe_expert_axis(ExpertOptions& options);
OptionGroup describe(ExpertOptions& options);
OptionGroup describe(CheckpointOptions& options);
OptionGroup describe(RunOptions& options);
// All groups, bound to the fields of `options`, which must outlive them.
std::vector<OptionGroup> describe(TrainOptions& options);

// Throws Error (bad_input) naming the option and the rule if an option breaks one of its own rules.
void check_bounds(const TrainOptions& options);

// Whether ranks that split the layers keep parts of the inputs that full recomputation needs.
bool partitions_activations(const TrainOptions& options);
// The model's options. Throws Error (bad_input) for unknown names.
ModelOptions model_options(const TrainOptions& options);
// A model's experts, with a training's way to route. Throws Error (bad_input) if there are none.
ExpertConfig with_options(ExpertConfig experts, const ExpertOptions& options);
OptimizerSettings optimizer_settings(const TrainOptions& options);
// The adapters that are trained; none if all weights are.
LoraConfig lora_config(const TrainOptions& options);

// The name of the loss-scaling rule, with its default.
std::string loss_scaling(const TrainOptions& options);

// The learning rate of a step, and the factor that clips gradients of a given norm.
double learning_rate(const TrainOptions& options, int step);
double clip_factor(const TrainOptions& options, double gradient_norm);

}  // namespace lockstep
