// Tensor parallelism over numbers of ranks and kinds of links: layers of any size go forward and
// back in virtual time, on a processor of a given rate and with nothing in memory. What they send
// and keep is counted, and stands beside the closed forms.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bench/techniques/roofline_backend.h"
#include "models/gpt_stage.h"

namespace lockstep {

struct TensorBenchOptions {
  // Of GPT-3's layers.
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

// Of one layer on one rank.
struct TensorPoint {
  std::string variant, recompute, link;
  int ranks = 1;
  double forward_seconds = 0, backward_seconds = 0;
  double compute_seconds = 0;                   // of both; the rest is exposed communication
  Count forward_bytes = 0, backward_bytes = 0;  // sent
  Count expected_forward_bytes = 0, expected_backward_bytes = 0;
  Count activation_bytes = 0, expected_activation_bytes = 0;
  // What Megatron-LM keeps: Korthikanti et al., 2022, table 2; without attention in blocks.
  double megatron_activation_bytes = 0;
  std::string skipped;  // why there are no figures

  double seconds() const { return forward_seconds + backward_seconds; }
  // Rounding may make nothing less than nothing.
  double exposed_seconds() const { return std::max(0.0, seconds() - compute_seconds); }
  bool is_right() const {
    return forward_bytes == expected_forward_bytes && backward_bytes == expected_backward_bytes &&
           activation_bytes == expected_activation_bytes;
  }
};

// Prints what a layer keeps for backward, tensor by tensor, for each variant on each number of
// ranks.
void print_kept_tensors(const TensorBenchOptions& options);

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result where a
// count differs from its closed form.
std::vector<TensorPoint> bench_tensor(const TensorBenchOptions& options);
// As Google Benchmark writes them.
std::string tensor_json(const std::vector<TensorPoint>& points, const TensorBenchOptions& options);

// Bytes that Megatron-LM keeps of a layer, with one byte for each element of a dropout mask.
double megatron_activation_bytes(const TensorBenchOptions& options, const LayerSplit& split,
                                 Recompute recompute);

}  // namespace lockstep
