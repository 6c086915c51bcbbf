// The algorithms by which units are gathered and reduced, and what they send and hold.
#pragma once

#include "parallel/plan/environment.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

// The ranks that exchange units: those that hold the shards, the group that keeps them between
// forward and backward (null: none does), and those with the same shards in other replicas.
struct UnitRanks {
  Communicator& shards;
  Communicator* group;
  Communicator& between;
};
// Replaces "auto" by its choice for each exchange of each unit. Throws Error (bad_input) if a named
// algorithm cannot run here.
void choose_algorithms(RankUnits& units, const Plan& plan, const UnitRanks& ranks);

// Lists the algorithms of all units, for Environment::algorithms; and sets them from such a list.
std::vector<std::string> listed_algorithms(const RankUnits& units);
void take_algorithms(RankUnits& units, const std::vector<std::string>& listed);

// What a rank sends and receives in a step: for gradients in elements of the plan's reduce_dtype,
// for parameters, and for gradients between replicas of the shards, in elements of its dtype; what is
// compressed, in bytes. Empty if an algorithm belongs to a library, or is not chosen yet.
struct ShardedTraffic {
  Traffic gradients, parameters, between_replicas;
};
std::optional<ShardedTraffic> sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                                              const RankUnits& units,
                                              const ReplicaFacts& facts = {});
// Formulas for the bytes of gradients and of parameters, and for the messages of both.
struct ShardedFormulas {
  std::string gradients, parameters, messages;
};
ShardedFormulas sharded_formulas(const Plan& plan, const Sharding& sharding);

// The most scratch that the algorithms allocate at once, in bytes.
Count sharded_scratch_bytes(const Plan& plan, const Sharding& sharding, const RankUnits& units);

}  // namespace lockstep
