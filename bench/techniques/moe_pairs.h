// What it saves to overlap the passes of pairs of micro-batches: training steps of a pipeline whose ranks
// divide experts, simulated with --overlap-pairs and without, on processors and links of given rates. Both
// run the code of a training. Bytes, messages and memory must equal their closed forms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/techniques/moe.h"
#include "models/ops/roofline_backend.h"

namespace lockstep {

struct MoePairOptions {
  int pipeline_ranks = 2, micro_batches = 8, layers = 8;
  int expert_width = 2048;  // hidden columns of an expert
  Roofline roofline;
};

// A simulated step.
struct MoePairStep {
  double seconds = 0;
  double exposed_seconds = 0;   // waiting for experts' rows, the mean over ranks
  std::int64_t peak_bytes = 0;  // of the rank with the most
};

// Of `ranks` that divide experts in each of the pipeline's places, and `tokens` of a rank in a
// micro-batch.
struct MoePairPoint {
  std::string skew, link;
  int ranks = 1, per_token = 1, tokens = 0;
  double bytes_per_second = 0;  // of the link between nodes
  std::int64_t tokens_of_step = 0;
  MoePairStep one_by_one, in_turns;
  std::string skipped;  // the reason if there are no figures

  double tokens_per_second(const MoePairStep& step) const {
    return static_cast<double>(tokens_of_step) / step.seconds;
  }
};

// Prints a line for each setting. If `trace` is given, it becomes a trace of the first one's step in
// turns. Throws Error (wrong_result) if a figure differs from its closed form.
std::vector<MoePairPoint> bench_moe_pairs(const MoeBenchOptions& options,
                                          const MoePairOptions& pairs, std::string* trace);

}  // namespace lockstep
