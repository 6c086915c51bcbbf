// Blockwise attention over lengths of sequences: time and memory of forward and backward, compared
// with the plain form, which has all scores in memory, and with PyTorch.
#pragma once

#include <string>
#include <vector>

#include "models/backend.h"

namespace lockstep {

struct AttentionBenchOptions {
  std::vector<Count> lengths = {256, 512, 1024, 2048, 4096};
  Count heads = 8, kv_heads = 0, head_size = 64, sequences = 1;  // kv_heads 0: as many as heads
  DType dtype = DType::f32;
  std::vector<int> threads = {1};
  int iterations = 5;
  std::string torch_python, torch_script;  // empty: without PyTorch
};

// The figures of one kernel for one length.
struct AttentionPoint {
  std::string kernel;  // blockwise, plain or torch
  Count length = 0;
  int threads = 1;
  double forward_seconds = 0, backward_seconds = 0;  // medians
  double forward_flops = 0, backward_flops = 0;
  // Memory kept from forward to backward in addition to inputs and output; memory taken during a
  // call in addition to its results. Negative: unknown.
  double kept_bytes = -1, working_bytes = -1;
  std::string skipped;  // the reason if there are no figures
};

// Prints a line for each point. Throws Error: wrong_result if the plain form disagrees.
std::vector<AttentionPoint> bench_attention(const AttentionBenchOptions& options);
// The points as Google Benchmark's JSON.
std::string attention_json(const std::vector<AttentionPoint>& points,
                           const AttentionBenchOptions& options);

}  // namespace lockstep
