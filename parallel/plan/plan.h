// A plan says what is trained, on which ranks, and how. It is pure data without storage, checked
// once. The runtime runs any plan; predict() computes from it what each rank will send and hold.
//
//   mesh         ranks along tp (layers), cp (sequences), dp (replicas) and pp (stages)
//   schedule     the order in which a pipeline's ranks take micro-batches forward and back
//   units        what is gathered and reduced as a whole: a block, or an end of the model
//
// `lockstep train TECHNIQUE` is a preset: a plan with some axes free.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "parallel/pipeline/schedules/schedule.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/plan/context_split.h"
#include "parallel/plan/expert_choices.h"
#include "parallel/plan/mesh.h"
#include "parallel/plan/options.h"
#include "parallel/plan/share.h"

namespace lockstep {

// The ranks that have the same parameters, and sum the gradients of these; and the place of one.
struct ReplicaGroup {
  int copies = 1, copy = 0;
  int replicas = 1;  // that each hold all shards
  int shards() const { return copies / replicas; }
  int shard() const { return copy % shards(); }
  int replica() const { return copy / shards(); }
};

struct Plan {
  TrainOptions options;  // including all defaults that depend on other options
  int ranks = 1;         // of the world
  GptConfig model;
  Mesh mesh;          // of the ranks that compute: the first ranks of the world
  Schedule schedule;  // of each pipeline
  // Where nothing computes scores; null for a model without experts.
  std::shared_ptr<const ExpertChoices> choices = {};

  const std::string& technique() const { return options.technique; }
  // Parameter servers keep the optimizer outside of the mesh; the runtime does not run them.
  bool has_servers() const;
  // Whether workers take steps independently, and maybe not equally many.
  bool is_asynchronous() const { return has_servers() && options.mode != "bsp"; }
  bool has_pipeline() const;
  // Whether it is run by the code that all others are compared with.
  bool is_reference() const;
  // What replicas shard: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters.
  int zero_stage() const;
  // The ranks with the same part of the model, which sum their gradients, and a rank's place among
  // them. They process different sequences, or along cp different tokens of the same ones.
  int copies() const { return mesh.length(replica_axes()); }
  int copy(int rank) const { return mesh.number_along(rank, replica_axes()); }
  // The groups of ranks that process different sequences, and the one of a rank.
  int sequence_groups() const { return mesh.length(sequence_axes()); }
  int sequence_group(int rank) const { return mesh.number_along(rank, sequence_axes()); }
  // The ranks that hold the shards of a rank's part of the model, and its place among them.
  int shards() const { return copies() / options.replicas; }
  int shard(int rank) const { return copy(rank) % shards(); }
  // The same for a set of parameters. Experts that ranks divide have fewer copies: neighbours among
  // the copies of the rest have different experts.
  ReplicaGroup replicas(int rank, ParameterSet set) const;
  // Whether adapters are trained, and all other parameters are frozen.
  bool trains_adapters() const { return options.lora_rank > 0; }
  int expert_ranks() const { return options.expert_ranks.value_or(1); }
  int expert_rank(int rank) const { return copy(rank) % expert_ranks(); }
  // The tensor-parallel ranks that split each expert.
  int expert_tensor_ranks() const {
    return model.experts.exist() ? options.expert_tensor_ranks.value_or(length(Axis::tp)) : 1;
  }
  // The ranks with which a rank divides experts, and those of its replica group.
  Mesh::Group expert_group(int rank) const;
  Mesh::Group replica_group(int rank, ParameterSet set) const;
  // The ranks among which a rank's routers have different tokens: of the same sequences, or of all.
  Mesh::Group sequence_group_of_routers(int rank) const;
  Mesh::Group router_group(int rank) const;
  // The size of groups of neighbours that keep all shards of a block between forward and backward;
  // 0: no groups do.
  int group_ranks() const;
  // Whether replicas all-reduce gradients. Otherwise the ranks with shards reduce-scatter them.
  bool all_reduces_gradients() const;
  // Whether they send fewer bytes than their gradients have, not merely another type.
  bool compresses_gradients() const { return compresses(options); }
  // Whether ranks that shard parameters gather them in fewer bytes.
  bool compresses_parameters() const { return zero_stage() == 3 && options.gather != "whole"; }
  // Whether the stages with copies of the embedding add their gradients after replicas have. Compressed next to other
  // gradients, the same sum would become another one on each of these stages.
  bool sums_tied_copies_last() const { return compresses_gradients() && zero_stage() == 0; }
  // Of how many replicas each takes its steps alone: 1 if they take them together.
  int replicas_apart() const { return options.local_steps ? sequence_groups() : 1; }
  // Whether ranks keep something between steps that no other rank can give back.
  bool keeps_own_state() const;
  int computing_ranks() const { return mesh.size(); }
  bool computes(int rank) const { return rank < computing_ranks(); }
  int length(Axis axis) const { return mesh.length(axis); }
  int place(int rank, Axis axis) const { return mesh.place_of(rank)[axis]; }
  // Whether no rank holds the whole model.
  bool splits_model() const { return mesh.length(model_axes()) > 1; }

  int tokens_of_sequence() const { return options.sequence_length; }
  Count tokens_per_step() const { return Count{options.global_batch} * tokens_of_sequence(); }
  // The sequences of a step that the replica of `rank` computes.
  Share share(int rank) const;
  // The number of validation sequences that a replica takes at a time: no more than any replica has
  // in training, so that validation needs no more memory.
  int validated_at_once() const;
  // The tokens of a sequence that the rank has.
  TokenLayout layout(int rank) const { return context(rank).layout; }
  // Rows (tokens) of each of the rank's micro-batches.
  std::vector<Count> rows(int rank) const;
  // The rows of the largest micro-batch of any rank.
  Count most_tokens() const;
  // Whether all micro-batches of all replicas have the same number of sequences.
  bool has_even_batches() const;

  LayerSplit split(int rank) const;
  RankPlace rank_place(int rank, ParameterSet set = ParameterSet::dense) const;
  ContextSplit context(int rank) const;
  // With several stages, or if backward is split in two, full recomputation covers a whole stage,
  // and the executor does it. Otherwise it covers each layer.
  bool recomputes_stages() const;
  ModelOptions stage_options() const;
  // Whether two actions that follow each other are a forward and a backward pass in one block that
  // take turns, because rows travel to experts in both.
  bool is_pair(const Action& action, const Action& next) const;
  // The places of the first and the last stage along pp.
  std::pair<int, int> ends_of_pipeline() const;
  // The shape for which the schedule was made; `name` is empty if it came from a file.
  PipelineShape shape() const;
  std::string schedule_name() const;
};

// Throws Error (bad_input) naming the broken rule, and similar plans that would work.
Plan plan_of(const TrainOptions& options, int ranks);

// The options that affect this plan, in the order of their descriptions.
nlohmann::ordered_json options_json(const Plan& plan);
// Schema lockstep.plan/1: technique, ranks, options, and what follows from them.
nlohmann::ordered_json plan_json(const Plan& plan);

// The content of a plan file. Throws Error (bad_input) naming the file and the wrong key.
struct PlanFile {
  TrainOptions options;
  int ranks = 1;
  std::vector<std::string> given;  // flags of the options that it sets
};
PlanFile read_plan(const std::string& path);
// The same for JSON that is a part of that file.
PlanFile plan_from_json(const nlohmann::ordered_json& json, const std::string& path);

// A technique: how to make its plans, and how the demo shows it.
struct TechniqueEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<int> demo_ranks;          // ranks in the demo, which omits presets
  std::vector<std::string> demo_flags;  // flags in the demo
  // The axis that takes the remaining ranks; none: one rank.
  std::optional<Axis> free_axis = {};
  bool has_pipeline = false;     // the layers may be in stages
  bool divides_experts = false;  // between all replicas, if the plan does not say otherwise
  bool has_mesh = false;         // every axis has a length of its own
  // What runs its plans: one rank that is the reference, parameter servers, or else the runtime.
  bool is_reference = false, has_servers = false;
  // What replicas shard, as Plan::zero_stage(); by default, if the plan may choose it.
  int zero_stage = 0;
  bool chooses_zero_stage = false;
  // Options that follow from its name, for so many ranks along cp.
  void (*set_implied)(TrainOptions&, int context_ranks) = nullptr;
  // For a preset: the technique it is based on; it has the same options with different defaults.
  std::string_view preset_of = {};
  void (*set_defaults)(TrainOptions&) = nullptr;

  // The default number of ranks: the fewest with which the technique has an effect.
  int default_ranks() const { return preset_of.empty() ? (free_axis ? 2 : 1) : demo_ranks.front(); }
};
const std::vector<TechniqueEntry>& techniques();
// The default options of a technique. Throws like technique().
TrainOptions default_options(std::string_view technique);
// The default number of ranks of a plan: as many as its options need.
int default_ranks(const TrainOptions& options);
// Throws Error (bad_input) that lists the techniques.
const TechniqueEntry& technique(std::string_view name);

}  // namespace lockstep
