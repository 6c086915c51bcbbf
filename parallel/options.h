// Everything that decides a training run, with the defaults of the command line.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collectives/base/dtype.h"
#include "models/gpt_stage.h"

namespace lockstep {

struct TrainOptions {
  std::string technique = "serial";
  std::string model = "nano";  // a preset, or the path of a config.json
  std::string init;            // weights to start from; empty: random ones from the seed
  std::string data;            // text or token file
  std::string order = "random";
  std::uint64_t seed = 1;

  int global_batch = 12;
  int micro_batches = 1;    // per rank and step
  int sequence_length = 0;  // 0: the model's context
  int steps = 100;
  DType dtype = DType::f32;
  std::string loss_scaling;  // none, torch, megatron, deepspeed; empty: torch for f16, else none
  int threads = 0;           // of each rank; 0: the cores divided by the ranks

  double learning_rate = 1e-3;
  int warmup_steps = 0;
  double minimum_learning_rate = -1;  // < 0: constant after the warm-up; else cosine down to this
  double weight_decay = 0.1;
  double grad_clip = 1.0;  // 0: none
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;

  double validation_fraction = 0;
  int eval_interval = 0;  // 0: after the last step only

  std::string algorithm = "ring";     // of the all-reduce, or auto
  std::optional<DType> reduce_dtype;  // that gradients travel in; else their own
  bool overlap = true;                // all-reduce buckets while backward goes on
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;

  int servers = 1;           // parameter servers among the ranks
  bool colocated = false;    // a server beside every worker instead
  std::string mode = "bsp";  // bsp: all workers in step; ssp: at most `staleness` steps apart; asp
  int staleness = 0;

  std::string schedule = "1f1b";  // of a pipeline
  std::string schedule_file;      // instead: a schedule as action text
  int chunks = 0;                 // stages on every rank; 0: what the schedule has
  int group_size = 0;             // of the schedule interleaved; 0: as many as ranks

  int tensor_ranks = 0;                    // that split every layer; 0: all there are, or 1 in 3d
  int pipeline_ranks = 1, data_ranks = 0;  // of 3d; 0: as many as there are then
  std::string mesh_order = "tp-cp-dp-pp";
  bool sequence_parallel = false;
  bool keep_gathered = false;  // what a layer's ranks have gathered, for backward
  bool tensor_overlap = false;
  int vocabulary_multiple = 1;  // each tensor-parallel rank has a multiple of it

  double dropout = 0;
  std::string dropout_streams = "place";  // or megatron
  double label_smoothing = 0;
  std::string recompute = "none";  // selective: the attention; full: every layer, or stage

  std::map<int, double> slow_ranks;  // how many times longer these ranks compute
  double compute_seconds = 0;        // under the clock unit: of a rank's part of a step

  std::string save;  // final weights; empty: none
  int sample = 0;    // tokens of text to write after training
  std::string prompt = "\n";
};

// Throws Error (bad_input) that names the option and the rule it breaks, before anything is
// started.
void check(const TrainOptions& options, int ranks);

// Tokens of a sequence: what was asked for, or the model's context.
int sequence_length(const TrainOptions& options, const GptConfig& config);

// Those that the model sees. Throws Error (bad_input) for names that are none.
ModelOptions model_options(const TrainOptions& options);

// The rule of loss scaling by name, with its default.
std::string loss_scaling(const TrainOptions& options);

// The learning rate of a step, and what gradients of that norm are multiplied by to be clipped.
double learning_rate(const TrainOptions& options, int step);
double clip_factor(const TrainOptions& options, double gradient_norm);

}  // namespace lockstep
