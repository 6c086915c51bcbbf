// A case of the fuzzer: a model, and plans for it, drawn at random. The first plan begins the
// training; each other plan resumes it from the checkpoint of the plan before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace lockstep {

// A plan whose options name no real files: "checkpoint", "tier", "schedule" and "adapters" stand for
// the case's files.
struct FuzzPlan {
  TrainOptions options;  // `steps`: the total when this plan ends
  int ranks = 1;
  std::string schedule = {};  // the pipeline's schedule as action text; empty: the one that options
                              // name
};

struct FuzzCase {
  std::uint64_t seed = 1;  // of weights, data and delays
  GptConfig model;
  std::vector<FuzzPlan> plans;
  // All tokens of a layer choose the same experts: the others, and all of a rank's, get none.
  bool same_experts = false;

  const FuzzPlan& last() const { return plans.back(); }
  FuzzPlan& last() { return plans.back(); }
  // Returns the first step that a plan takes.
  int first_step(std::size_t plan) const { return plan > 0 ? plans[plan - 1].options.steps : 0; }
};

// Whether rounding errors stay small: layer norms over few columns, one after another, multiply them.
bool is_stable(const FuzzCase& fuzz_case);
// Whether the elements that dropout drops depend on the plan, so that one rank gives different
// results.
bool drops_by_rank(const FuzzPlan& plan);

// Copies the options on which all plans of a case must agree, because each resumes where the
// previous one ended.
void take_training(TrainOptions& into, const TrainOptions& from);
// Sets which plans write checkpoints and resume, by their order.
void chain(FuzzCase& fuzz_case);

// Files of a case.
struct FuzzFiles {
  std::string folder;
  std::string model() const { return folder + "/config.json"; }
  std::string weights() const { return folder + "/weights.safetensors"; }
  std::string text() const { return folder + "/text"; }
  std::string history() const { return folder + "/history"; }
  std::string tier() const { return folder + "/tier"; }
  std::string adapters() const { return folder + "/adapters"; }
  // What replicas have made of a step's gradients by compressing them.
  std::string gradients(int step) const {
    return numbered("gradients", static_cast<std::size_t>(step));
  }
  // Made by a process that has refused the case: mpirun may hide its exit status.
  std::string refused() const { return folder + "/refused"; }
  std::string schedule(std::size_t plan) const { return numbered("schedule", plan); }
  std::string checkpoint(std::size_t plan) const { return numbered("checkpoint", plan); }

 private:
  std::string numbered(const char* name, std::size_t plan) const;
};
// Writes weights without structure, none of them zero, such adapters to start from, short documents,
// and schedules.
void write_files(const FuzzCase& fuzz_case, const FuzzFiles& files);

// Returns a plan of a case with its files. Throws Error (bad_input) if it breaks a rule.
Plan plan_of(const FuzzCase& fuzz_case, std::size_t plan, const FuzzFiles& files);
// The same without files.
Plan plan_of(const FuzzPlan& plan, const GptConfig& model);

// The most steps of a case.
inline constexpr int most_fuzz_steps = 5;

// Limits for draw_case(), which draws case `number` of a seed, with options from their
// descriptions. `most_ranks` limits the ranks; with `all_ranks` the last plan has exactly that
// many. Every fifth model has experts, with `experts` all.
struct DrawLimits {
  int most_ranks = 16;
  bool all_ranks = false;
  bool experts = false;
  int most_tries = 10'000;  // plans drawn until one has that many ranks
};
// Throws Error (bad_input) if none of them has.
FuzzCase draw_case(std::uint64_t seed, std::int64_t number, const DrawLimits& limits);

// A schedule in which every rank of a pipeline takes its actions in a random order that can be run.
std::string draw_schedule(std::uint64_t seed, const PipelineShape& shape);

// Schema lockstep.fuzz/1.
std::string case_json(const FuzzCase& fuzz_case);
// Throws Error (bad_input) naming the file and what is wrong in it.
FuzzCase read_case(const std::string& path);

// Returns cases that are simpler in one respect, the largest simplifications first; not all of them
// are valid plans.
std::vector<FuzzCase> simpler_cases(const FuzzCase& fuzz_case);
// Replaces the case by simpler ones as long as they still fail according to `fails`.
FuzzCase shrink(FuzzCase failing, const std::function<bool(const FuzzCase&)>& fails);

}  // namespace lockstep
