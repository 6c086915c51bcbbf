// A case of the fuzzer: a model and a plan for it, drawn at random. It may begin with another plan,
// from whose checkpoint the plan resumes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan.h"

namespace lockstep {

struct FuzzPlan {
  TrainOptions options;
  int ranks = 1;
};

struct FuzzCase {
  std::uint64_t seed = 1;  // of weights, data, dropout and delays
  GptConfig model;
  FuzzPlan plan;
  std::optional<FuzzPlan> before;  // takes the first step and writes a checkpoint
};

// Whether rounding errors stay small: layer norms over few columns, one after another, multiply them.
bool is_stable(const FuzzCase& fuzz_case);

// What both plans of a case must agree on, because one goes on where the other ended.
void take_training(TrainOptions& into, const TrainOptions& from);

// Files of a case: its model, weights and data.
struct FuzzFiles {
  std::string folder;
  std::string model() const { return folder + "/config.json"; }
  std::string weights() const { return folder + "/weights.safetensors"; }
  std::string text() const { return folder + "/text"; }
  std::string checkpoint() const { return folder + "/checkpoint"; }
};
// Writes weights without structure, none of them zero, and short documents.
void write_files(const FuzzCase& fuzz_case, const FuzzFiles& files);

// The plan of `plan` for the model. Throws Error (bad_input) if it breaks a rule.
Plan plan_of(const FuzzPlan& plan, const FuzzFiles& files);

// The optimizer steps of a case. One that resumes takes the second only.
inline constexpr int fuzz_steps = 2;

// Case `number` of a seed. The plan's options come from their descriptions. `most_ranks` limits the
// ranks; with `all_ranks` each plan has exactly as many.
struct DrawLimits {
  int most_ranks = 16;
  bool all_ranks = false;
  int most_tries = 10'000;  // plans drawn until one has that many ranks
};
// Throws Error (bad_input) if none of them has.
FuzzCase draw_case(std::uint64_t seed, std::int64_t number, const DrawLimits& limits);

// Schema lockstep.fuzz/1.
std::string case_json(const FuzzCase& fuzz_case);
// Throws Error (bad_input) naming the file and what is wrong in it.
FuzzCase read_case(const std::string& path);

// Cases that are simpler in one respect, the largest steps first; not all of them are valid plans.
std::vector<FuzzCase> simpler_cases(const FuzzCase& fuzz_case);
// Replaces the case by simpler ones as long as `fails` says that they still fail.
FuzzCase shrink(FuzzCase failing, const std::function<bool(const FuzzCase&)>& fails);

}  // namespace lockstep
