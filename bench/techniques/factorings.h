// Compares the ways to arrange ranks along the axes of a mesh: the factorings of their number into tp,
// cp, pp and dp. Each is one plan, whose code runs in virtual time, without data, on processors and
// links of given rates.
//
//   step = compute + bubble + exposed communication along each axis
//
// All are means over the ranks, except for the step, which ends with the slowest rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/error.h"
#include "models/ops/roofline_backend.h"
#include "parallel/plan/mesh.h"
#include "parallel/plan/options.h"
#include "parallel/plan/plan.h"

namespace lockstep {

struct FactoringBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.technique = "3d";
    options.global_batch = 0;
    return options;
  }();  // a global batch of 0: one sequence for each rank
  std::vector<int> ranks = {16};
  // The lengths of an axis to try; empty: all, but for tp and cp only lengths that together fit
  // into a node of the links.
  std::vector<int> tensor, context, pipeline, data;
  int micro_batch_size = 1;  // sequences
  std::string link = "dgx";
  Roofline roofline;
  std::optional<std::int64_t> memory_limit;  // per rank, in bytes
  // Times are those that one more block of each stage adds: see one_more_block.h.
  bool per_block = false;
  // Exposed communication over computing, up to which ranks count as bound by computing.
  std::optional<double> exposed_limit;
};

// The parts of a step, in seconds.
struct StepParts {
  double compute = 0;
  double bubble = 0;  // waiting for other ranks, if messages between stages took no time
  // Exposed communication: for layers, for sequences, for replicas, and between stages.
  double tp = 0, cp = 0, dp = 0, pp = 0;

  double exposed() const { return tp + cp + dp + pp; }
  double largest_exposed() const { return std::max({tp, cp, dp, pp}); }  // of one axis
  double sum() const { return compute + bubble + exposed(); }
  StepParts operator-(const StepParts& other) const {
    return {.compute = compute - other.compute,
            .bubble = bubble - other.bubble,
            .tp = tp - other.tp,
            .cp = cp - other.cp,
            .dp = dp - other.dp,
            .pp = pp - other.pp};
  }
};

struct Factoring {
  AlongAxes lengths{1};
  int micro_batches = 1;
  double step_seconds = 0;
  StepParts parts;
  std::optional<StepParts> expected_parts;         // of a block, where they have closed forms
  std::map<std::string, std::int64_t> peak_bytes;  // of the rank with the most, by use, and "total"
  int busiest_rank = 0;
  int kinds_of_ranks = 0;  // simulated kinds
  std::string refused;     // the reason if there is no such plan

  int ranks() const {
    return lengths[Axis::tp] * lengths[Axis::cp] * lengths[Axis::pp] * lengths[Axis::dp];
  }
  std::int64_t bytes() const { return peak_bytes.at("total"); }
  std::string name() const;  // tp 2, cp 1, pp 4, dp 2
};

// All factorings of the numbers of ranks, without measurements. Throws Error (bad_input) if no number has
// the given lengths.
std::vector<Factoring> factorings_of(const FactoringBenchOptions& options);
// Sets the factoring's micro-batches. Throws Error (bad_input) if there is no such plan.
Plan plan_of_factoring(Factoring& factoring, const FactoringBenchOptions& options);

// All factorings, the fastest first, and those that are refused at the end. If the user interrupts
// the search, `interruption` says so, and the factorings that were not simulated are refused.
// Throws Error: bad_input if no number has the given lengths, wrong_result if a count
// differs from its closed form, interrupted without `interruption`.
std::vector<Factoring> bench_factorings(const FactoringBenchOptions& options,
                                        std::optional<Error>* interruption = nullptr);

// The fastest within the memory limit; null if there is none.
const Factoring* fastest(const std::vector<Factoring>& factorings,
                         const FactoringBenchOptions& options);
// Explains why `other` is not chosen: the memory that it lacks, or what takes more time.
std::string why_not(const Factoring& other, const Factoring& chosen,
                    const FactoringBenchOptions& options);

// The largest number of ranks that one of the factorings keeps within the limit of exposed
// communication, that factoring, and the number by the closed forms, if all factorings have one.
struct MostRanks {
  const Factoring* measured = nullptr;  // null: none is within the limit
  std::optional<int> expected;          // 0: none
};
// `alone`: each axis is within the limit, as if the axes' communication overlapped, instead of their sum.
MostRanks most_ranks(const std::vector<Factoring>& factorings, double limit, bool alone);

void print_factorings(const std::vector<Factoring>& factorings,
                      const FactoringBenchOptions& options);
// As Google Benchmark writes them.
std::string factorings_json(const std::vector<Factoring>& factorings,
                            const FactoringBenchOptions& options);

}  // namespace lockstep
