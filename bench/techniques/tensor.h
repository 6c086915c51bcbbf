// Tensor parallelism over numbers of ranks and kinds of links: runs forward and backward of layers
// of any size in virtual time, on a processor of a given rate, without memory. Counts the bytes
// they send and keep, and compares them with the closed forms.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "models/gpt/gpt_stage.h"
#include "models/ops/roofline_backend.h"

namespace lockstep {

struct TensorBenchOptions {
  // Defaults: GPT-3's layers.
  Count width = 12288, heads = 96, kv_heads = 0, length = 2048, sequences = 1;
  DType dtype = DType::bf16;
  Roofline roofline;
  std::vector<int> ranks = {1, 2, 4, 8};
  std::vector<std::string> variants = {"tp", "sp"};
  std::vector<std::string> recompute = {"none"};
  std::vector<std::string> links = {"nvlink"};
};

// tp, sp, sp-kept, and each with -overlap.
const std::vector<std::string>& tensor_variants();

// The figures of one layer on one rank.
struct TensorPoint {
  std::string variant, recompute, link;
  int ranks = 1;
  double forward_seconds = 0, backward_seconds = 0;
  double compute_seconds = 0;  // of both; the rest of the time is exposed communication
  Count forward_bytes = 0, backward_bytes = 0;  // sent
  Count expected_forward_bytes = 0, expected_backward_bytes = 0;
  Count activation_bytes = 0, expected_activation_bytes = 0;
  // Activations of Megatron-LM: Korthikanti et al., 2022, table 2; without blockwise attention.
  double megatron_activation_bytes = 0;
  std::string skipped;  // the reason if there are no figures

  double seconds() const { return forward_seconds + backward_seconds; }
  // Rounding may make it slightly negative.
  double exposed_seconds() const { return std::max(0.0, seconds() - compute_seconds); }
  bool is_right() const {
    return forward_bytes == expected_forward_bytes && backward_bytes == expected_backward_bytes &&
           activation_bytes == expected_activation_bytes;
  }
};

// Prints the tensors that a layer keeps for backward, for each variant and number of ranks.
void print_kept_tensors(const TensorBenchOptions& options);

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result if a count
// differs from its closed form.
std::vector<TensorPoint> bench_tensor(const TensorBenchOptions& options);
// The points as Google Benchmark's JSON.
std::string tensor_json(const std::vector<TensorPoint>& points, const TensorBenchOptions& options);

// Bytes of a layer that Megatron-LM keeps, with one byte for each element of a dropout mask.
double megatron_activation_bytes(const TensorBenchOptions& options, const LayerSplit& split,
                                 Recompute recompute);

}  // namespace lockstep
