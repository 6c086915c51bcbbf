// What a plan shards over its data-parallel ranks, as pure data, and the closed forms that follow.
//
//   bytes sent per rank and step, P ranks, K micro-batches (parameters of beta_p bytes, gradients
//   reduced in beta_g bytes; exactly, with uneven shards, as the algorithms say)
//
//   stage 1   (P-1)/P * Psi * (beta_g + beta_p)        the optimizer's states are sharded
//   stage 2   (P-1)/P * Psi * (K beta_g + beta_p)      and the gradients
//   stage 3   K (P-1)/P * ((2 Psi - Psi_root) beta_p + Psi beta_g)      and the parameters
//
// Stages 1 and 2 with the volume of an all-reduce send gradients twice. A step reduces gradients once
// if they are accumulated without synchronisation. Without resharding after forward, stage 3
// gathers parameters once per micro-batch. Under a pipeline, gradients are reduced once per step,
// and stage 3 gathers a pipeline stage as often as the schedule unshards it.
//
//   bytes held, the optimizer's states of K_opt bytes per parameter
//
//   stage 1   beta_p Psi + beta_g Psi + K_opt Psi/P
//   stage 2   beta_p Psi + beta_g Psi/P + K_opt Psi/P + gradients of units being reduced
//   stage 3   (beta_p + beta_g + K_opt) Psi/P         + the same + parameters of gathered units
//
// If the optimizer steps in backward, no gradients are kept: stages 2 and 3 hold those of units being
// reduced only.
//
// If parameters are split one by one, each chunk that is sent is as large as the first rank's: Psi is
// P times the sum of ceil(rows / P) * columns. If groups of N ranks keep the shards of blocks between
// forward and backward (ZeRO++'s hpZ), backward sends (N-1)/N * (Psi - Psi_root) * beta_p for
// parameters, and stage 3 holds (Psi - Psi_root)/N * beta_p more.
//
// Compressed parameters and gradients send other bytes: see exchange/compressed_gather.h and
// compressed_scatter.h.
//
// Psi are the parameters of the rank's part of the model. Hybrid sharding (HSDP): R replicas of P/R
// shards each. Then P is P/R above, and 2 (R-1)/R * Psi R/P * beta_p are sent between replicas.
//
// Rajbhandari et al., "ZeRO", 2020; Zhao et al., "PyTorch FSDP", 2023; Wang et al., "ZeRO++", 2023.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"
#include "parallel/plan/environment.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/order.h"
#include "parallel/sharded/shard_layout.h"

namespace lockstep {

// The names of the algorithms that exchange a unit.
struct UnitAlgorithms {
  std::string gather = "ring", gather_in_group = "ring";  // all_gather
  std::string reduce = "ring";                            // reduce_scatter, or all_reduce
  std::string between = "ring";                           // all_reduce between replicas
};

struct Sharding {
  int stage = 3;       // ZeRO's
  bool trains = true;  // frozen parameters are only gathered
  bool reduces_every_micro_batch = true;
  bool steps_in_backward = false;      // then no gradients are kept after they are reduced
  bool all_reduces_gradients = false;  // instead of reduce-scattering them
  // A pipeline gathers, frees and reduces whole stages, by the actions of its schedule. Otherwise
  // each micro-batch follows `order`.
  bool by_stage = false;
  bool per_parameter = false;  // each parameter is split, not the flat buffer of a unit
  int group_ranks = 0;  // ranks that keep a block's shards between forward and backward; 0: none do
  OrderOptions order;
  UnitAlgorithms algorithms;  // of every unit, as the plan names them

  bool shards_gradients() const { return stage >= 2; }
  bool shards_parameters() const { return stage >= 3; }
  Operation reduction() const {
    return all_reduces_gradients ? Operation::all_reduce : Operation::reduce_scatter;
  }
  bool reduces(int micro_batch, int micro_batches) const {
    return trains &&
           ((shards_gradients() && reduces_every_micro_batch) || micro_batch == micro_batches - 1);
  }
};
// Returns nothing if every rank holds everything.
std::optional<Sharding> sharding_of(const Plan& plan, ParameterSet set = ParameterSet::dense);

// The parameters of a unit, in the order of its flat buffer.
struct UnitParameters {
  std::vector<int> parameters;
  std::vector<Extent> extents;  // of each of them
  bool per_parameter = false;   // how they are sharded
  Count count = 0;
  std::optional<int> tied_copy = {};  // its gradient is complete only after the whole pipeline
  UnitAlgorithms algorithms = {};

  ShardLayout layout(int ranks) const { return {extents, per_parameter, ranks}; }
};
struct RankUnits {
  ReplicaGroup replicas;            // the ranks that have these units
  DType dtype;                      // of their values
  std::vector<UnitParameters> all;  // stage by stage: the root, if there is one, then the blocks
  struct Stage {
    int number = 0;  // in the pipeline
    StageShape shape;
    std::size_t first = 0;  // of its units
    // Returns the place of a unit, numbered as in `order`.
    std::size_t place(int unit) const {
      return first + static_cast<std::size_t>(unit) - (shape.has_root() ? 0 : 1);
    }
    std::size_t end() const { return place(shape.blocks) + 1; }
  };
  std::vector<Stage> stages;

  const Stage& stage(int number) const;
};
// The units of a set of parameters. `chosen` are the algorithms that listed_algorithms() has listed; if
// empty, those of `sharding`.
RankUnits sharded_units(const RankModel& model, const Sharding& sharding,
                        ParameterSet set = ParameterSet::dense,
                        const std::vector<std::string>& chosen = {});

// Returns the events of all micro-batches of a step, for a stage that is not in a pipeline.
std::vector<UnitEvent> step_order(const Plan& plan, const Sharding& sharding,
                                  const RankUnits& units);

// The parts of flat ranges that lie in a rank's shards, if shards are divided over `ranks` ranks.
struct OwnPart {
  std::size_t unit = 0;
  Range range;  // of the rank's shard
};
std::vector<OwnPart> own_parts(const Parameters& parameters, const RankUnits& units, int ranks,
                               int rank, const std::vector<Range>& ranges);

// The exchanges of a step among the ranks that hold the shards, in order, without the gathers of
// updated parameters.
struct UnitExchange {
  enum class Kind { gather, gather_in_group, reduce };
  Kind kind;
  std::size_t unit;
};
std::vector<UnitExchange> exchanges_of_step(const Plan& plan, int rank, const Sharding& sharding,
                                            const RankUnits& units);
// Returns how often a rank gathers each unit from all ranks in a step, if parameters are sharded.
std::vector<int> gathers_of_units(const Plan& plan, int rank, const Sharding& sharding,
                                  const RankUnits& units);

// The most elements held at once: this rank's shards of all units, or whole units, and the buffers
// of gathered parameters and of gradients not yet reduced. The buffers are a replay of a step.
struct ShardedElements {
  Count shards = 0, parameters = 0, gradients = 0;
  Count gathered() const { return parameters - shards; }  // if parameters are sharded
};
ShardedElements sharded_elements(const Plan& plan, int rank, const Sharding& sharding,
                                 const RankUnits& units);

// Return the memory for communication: the largest unit as it is reduced, if its gradients are rounded
// to a different type or compressed; and as it is gathered, if its parameters are compressed.
Count sharded_communication_bytes(const Plan& plan, const RankUnits& units,
                                  const ReplicaFacts& facts);
Count sharded_gather_bytes(const Plan& plan, const RankUnits& units);

}  // namespace lockstep
