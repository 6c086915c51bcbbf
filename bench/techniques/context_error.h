// The error of attention in bf16 over the number of ranks of a ring. The kernels compute every part
// of a rank's queries with the keys of one rank, and merge the results. Merged results, and gradients
// that add up over the ring, are kept in f32, as in parallel/context; or rounded to bf16 after every
// part. Inputs and results are bf16 in both. The reference is the same attention in f64, in one
// part.
#pragma once

#include <string>
#include <vector>

#include "models/backend.h"

namespace lockstep {

struct ContextErrorOptions {
  AttentionShape shape{
      .sequences = 1, .length = 1024, .heads = 4, .head_size = 32, .kv_heads = 4, .documents = {}};
  std::vector<int> ranks = {1, 2, 4, 8, 16, 32, 64};
};

struct ContextError {
  std::string accumulation;  // f32 or bf16
  int ranks = 1;
  // Relative errors: the root mean square of the differences over that of the reference.
  double of_output = 0, of_gradients = 0;
};

// Prints a line for each. Throws Error (bad_input) if a ring does not divide the length.
std::vector<ContextError> measure_context_errors(const ContextErrorOptions& options);
// As Google Benchmark's JSON.
std::string context_errors_json(const std::vector<ContextError>& errors,
                                const ContextErrorOptions& options);

}  // namespace lockstep
