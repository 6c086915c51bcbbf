// What a plan shards over its replicas, as pure data, and the closed forms that follow.
//
//   bytes sent per rank and step, P replicas, K micro-batches (parameters of beta_p bytes, gradients
//   reduced in beta_g bytes; exactly, with uneven shards, as the ring algorithms say)
//
//   stage 1   (P-1)/P * Psi * (beta_g + beta_p)        the optimizer's states are sharded
//   stage 2   (P-1)/P * Psi * (K beta_g + beta_p)      and the gradients
//   stage 3   K (P-1)/P * ((2 Psi - Psi_root) beta_p + Psi beta_g)      and the parameters
//
// Stages 1 and 2 with the volume of an all-reduce send gradients twice. A step reduces gradients once
// if they are accumulated without synchronisation. Without resharding after forward, stage 3 gathers
// parameters once a micro-batch.
//
//   bytes held, AdamW's states of K_opt bytes per parameter
//
//   stage 1   beta_p Psi + beta_g Psi + K_opt Psi/P
//   stage 2   beta_p Psi + beta_g Psi/P + K_opt Psi/P + gradients of units being reduced
//   stage 3   (beta_p + beta_g + K_opt) Psi/P         + the same + parameters of gathered units
//
// Rajbhandari et al., "ZeRO", 2020; Zhao et al., "PyTorch FSDP", 2023.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"
#include "parallel/rank_model.h"
#include "parallel/sharded/order.h"

namespace lockstep {

struct Sharding {
  int stage = 3;  // ZeRO's
  bool reduces_every_micro_batch = true;
  bool all_reduces_gradients = false;  // instead of reduce-scattering them
  OrderOptions order;

  bool shards_gradients() const { return stage >= 2; }
  bool shards_parameters() const { return stage >= 3; }
  bool reduces(int micro_batch, int micro_batches) const {
    return (shards_gradients() && reduces_every_micro_batch) || micro_batch == micro_batches - 1;
  }
};
// Nothing if the plan's replicas hold everything.
std::optional<Sharding> sharding_of(const TrainOptions& options);

// The parameters of a unit, in the order of its flat buffer.
struct UnitParameters {
  std::vector<int> parameters;
  Count count = 0;
};
// The root unit, then the blocks.
std::vector<UnitParameters> sharded_units(const RankModel& model);

// What a replica sends and receives in a step: for gradients in elements of the plan's reduce_dtype,
// for parameters in elements of its dtype.
struct ShardedTraffic {
  Traffic gradients, parameters;
};
ShardedTraffic sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                               const std::vector<UnitParameters>& units);

// Formulas of the bytes of gradients and parameters.
std::pair<std::string, std::string> sharded_formulas(const Plan& plan, const Sharding& sharding);

// Elements held at most: this replica's shards of all units, or whole units, and the buffers of
// gathered parameters and of gradients that are not reduced yet.
struct ShardedElements {
  Count shards = 0, parameters = 0, gradients = 0;
};
ShardedElements sharded_elements(const Plan& plan, int rank, const Sharding& sharding,
                                 const std::vector<UnitParameters>& units);

// Memory for communication: the largest unit, if its gradients are rounded to another type.
Count sharded_communication_bytes(const Plan& plan, const std::vector<UnitParameters>& units);

}  // namespace lockstep
