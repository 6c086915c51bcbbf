// A plan says what is trained, on which ranks, and how: pure data, checked once, without storage.
// The runtime runs any plan; predict() says from the plan alone what each rank will send and hold.
//
//   mesh         ranks along tp (layers), cp (sequences), dp (replicas) and pp (stages)
//   schedule     in which order a pipeline's ranks take micro-batches forward and back
//   units        what is gathered and reduced together: a block, or an end of the model
//
// `lockstep train TECHNIQUE` is a preset: a plan with some axes free.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "parallel/mesh.h"
#include "parallel/options.h"
#include "parallel/pipeline/schedules/schedule.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/share.h"

namespace lockstep {

struct Plan {
  TrainOptions options;  // with every default that depends on others filled in
  int ranks = 1;         // of the world
  GptConfig model;
  Mesh mesh;          // of the ranks that compute: the first ones of the world
  Schedule schedule;  // of each pipeline

  const std::string& technique() const { return options.technique; }
  // Parameter servers keep the optimizer apart from the mesh; they are no plan for the runtime.
  bool has_servers() const { return technique() == "ps"; }
  // Whether workers take steps of their own, as often as the others or not at all.
  bool is_asynchronous() const { return has_servers() && options.mode != "bsp"; }
  bool has_pipeline() const { return technique() == "pipeline" || technique() == "3d"; }
  int computing_ranks() const { return mesh.size(); }
  bool computes(int rank) const { return rank < computing_ranks(); }
  int length(Axis axis) const { return mesh.length(axis); }
  int place(int rank, Axis axis) const { return mesh.place_of(rank)[axis]; }
  // Whether no rank holds the whole model.
  bool splits_model() const { return length(Axis::tp) * length(Axis::pp) > 1; }

  int tokens_of_sequence() const { return options.sequence_length; }
  Count tokens_per_step() const { return Count{options.global_batch} * tokens_of_sequence(); }
  // The sequences of a step that `rank` computes, together with the ranks of its replica.
  Share share(int rank) const;
  // Rows (tokens) of each of its micro-batches.
  std::vector<Count> rows(int rank) const;
  // Whether every micro-batch of every replica has as many sequences.
  bool has_even_batches() const;

  LayerSplit split(int rank) const;
  // With several stages, or where backward is cut in two, full recomputation is of a whole stage,
  // which the executor does; else of each layer.
  bool recomputes_stages() const;
  ModelOptions stage_options() const;
  // The places along pp of the first stage and of the last.
  std::pair<int, int> ends_of_pipeline() const;
  // What the schedule was made for; `name` is empty where it came from a file.
  PipelineShape shape() const;
  std::string schedule_name() const;
};

// Throws Error (bad_input) naming the rule that is broken, and plans near to it that would work.
Plan plan_of(const TrainOptions& options, int ranks);

// The options that have an effect on this plan, in the order in which they are described.
nlohmann::ordered_json options_json(const Plan& plan);
// schema lockstep.plan/1: technique, ranks, options, and what follows from them.
nlohmann::ordered_json plan_json(const Plan& plan);

// What a plan file says. Throws Error (bad_input) naming the file and the key that is wrong.
struct PlanFile {
  TrainOptions options;
  int ranks = 1;
  std::vector<std::string> given;  // flags of the options that it sets
};
PlanFile read_plan(const std::string& path);

// A technique: its plans, and what is shown of it.
struct TechniqueEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<int> demo_ranks;          // what the demo shows it with
  std::vector<std::string> demo_flags;  // and how
  // The axis that takes the ranks which the others leave; none: one rank.
  std::optional<Axis> free_axis = {};
};
const std::vector<TechniqueEntry>& techniques();
// Throws Error (bad_input) listing the techniques there are.
const TechniqueEntry& technique(std::string_view name);

}  // namespace lockstep
