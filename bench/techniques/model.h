// The share of the library's matrix-product rate that training reaches: times each of the model's
// products alone, then whole steps, in one run. On a GPU, model FLOPs utilisation (MFU) is relative
// to the product "dense" of large square matrices.
#pragma once

#include <string>
#include <vector>

#include "collectives/transport/launch/launch.h"
#include "models/gpt_config.h"
#include "parallel/plan/options.h"

namespace lockstep {

// c[m, n] = a[m, k] b[k, n]; a or b may be transposed in memory.
struct Product {
  std::string name;  // "qkv forward"
  Count m = 0, n = 0, k = 0;
  bool transposed_a = false, transposed_b = false;
  Count times = 0;  // number of calls in one step

  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

// The products with weights in one step over `tokens` tokens: forward, input gradient and weight
// gradient of each linear layer and of the tied head. Rows are divided among experts as evenly as
// possible.
std::vector<Product> products_of_step(const GptConfig& config, Count tokens);

// Floating-point operations of one step of `sequences` x `length` tokens: 6 per token and weight that
// it uses (of K of E experts), and 6 layers width length per token for causal attention, half of full
// attention. Kaplan et al., "Scaling laws for neural language models", 2020, table 1, times 3 for
// forward and backward.
double step_flops(const GptConfig& config, Count sequences, Count length);

struct ModelBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.steps = 30;
    return options;
  }();
  std::vector<int> threads = {1, 2};
};

// Runs on the only rank of `context`. Prints the table and returns the results as Google
// Benchmark's JSON.
std::string bench_model(RankContext& context, const ModelBenchOptions& options);

}  // namespace lockstep
