// Searches the plans of a model on a number of GPUs for the fastest, and explains the choice.
//
//   1. every plan is checked: lengths that divide, memory that suffices; each rejection has a reason
//   2. the others are ranked in closed form (quick_step.h)
//   3. the best are replayed; the fastest of them that fits is chosen
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/planner/step_time.h"

namespace lockstep {

struct SearchOptions {
  int gpus = 1;
  std::int64_t global_batch = 0;     // 0: as many sequences as GPUs
  std::int64_t sequence_length = 0;  // 0: the model's context, at most 4096
  double memory_limit = 0;           // bytes of a rank; 0: what fits the cluster's GPUs
  bool fp8_gemms = false;
  int replayed = 64;
  std::vector<std::string> schedules = {"1f1b", "interleaved"};  // to try; pp 1 has none
};

struct FoundPlan {
  Arrangement arrangement;
  double quick_seconds = 0;  // by the closed form
  StepPrediction prediction;
  std::string refused;  // why there is no such plan; empty: predicted
  bool fits = false;
};

struct SearchResult {
  std::int64_t considered = 0;
  std::map<std::string, std::int64_t> rejected;  // by reason
  // Replayed, the fastest that fit first.
  std::vector<FoundPlan> plans;
  // One plan for each tp and pp that exists, in this order, replayed too: the fastest that fits, or,
  // where none does, the one that holds the least.
  std::vector<FoundPlan> by_tp_pp;
  double limit = 0;                    // bytes of a rank
  std::vector<std::string> schedules;  // that were tried
  // The largest part by which a closed form was wrong.
  double quick_error = 0;
};

// Throws Error (bad_input) if no plan of this model has so many GPUs, or if none fits; the error then
// names the smallest.
SearchResult search_plans(const Transformer& model, const ClusterSheet& cluster,
                          const SoftwareProfile& profile, const SearchOptions& options);

// A plan that differs from the best by one change, or why there is none.
struct Neighbour {
  std::string change;  // "tp 8, pp 4"
  FoundPlan plan;
  std::string verdict;  // one sentence
};
std::vector<Neighbour> neighbours(const Transformer& model, const ClusterSheet& cluster,
                                  const SoftwareProfile& profile, const SearchResult& result);
// Another plan next to the best, in the keys of a plan: {"tp": 16, "pp": 8}. Keys that are not
// given stay, but dp follows from the others.
Neighbour why_not(const nlohmann::ordered_json& changes, const Transformer& model,
                  const ClusterSheet& cluster, const SoftwareProfile& profile,
                  const SearchResult& result);

// What can be doubled: its name as a flag's value, and in a sentence.
struct Resource {
  std::string_view name, text;
  std::vector<double ClusterSheet::*> rates;
};
const std::vector<Resource>& resources();
ClusterSheet with_double(const Resource& resource, ClusterSheet cluster);

// The best plan's step if one resource were doubled.
struct WhatIf {
  std::string change;
  double seconds = 0;
  double saved = 0;  // as a fraction of the step
};
std::vector<WhatIf> what_if(const Transformer& model, const ClusterSheet& cluster,
                            const SoftwareProfile& profile, const FoundPlan& best);
// Shapes that the hardware multiplies slowly: what to change.
std::vector<std::string> advice(const Transformer& model, const Arrangement& arrangement);

// "tp 8, pp 16, dp 8, 4 virtual stages, micro-batch 1, recompute full, zero 1"
std::string text_of(const Arrangement& arrangement);
nlohmann::ordered_json plan_keys(const Arrangement& arrangement);

}  // namespace lockstep
