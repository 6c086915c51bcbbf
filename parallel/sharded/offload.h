// Offloads the optimizer's states, and with stage 3 the parameter shards, to a second tier. Only two groups
// of states are in memory at a time: while the optimizer steps one, the tier's thread writes the
// previous one and reads the next one. A unit's shard of parameters is read into the whole buffer
// just before the unit is gathered.
//
//   bytes moved per rank and step, from the tier and to it; states of K_opt bytes per parameter
//
//   optimizer    read     K_opt Psi/P                            written   K_opt Psi/P
//   parameters   read     (K_opt + gathers beta) Psi/P + beta Psi/P   written   (K_opt + beta) Psi/P
//
// The term beta Psi/P of reads is 0 for 16-bit values: their f32 masters take the steps. A file
// moves whole blocks, so each group of each unit is rounded up to a block.
//
//   bytes held   2 groups of K_opt bytes per element, with parameters 2 groups of values, and a
//                file's buffer; instead of K_opt Psi/P and beta Psi/P
//
// Ren et al., "ZeRO-Offload", 2021; Rajbhandari et al., "ZeRO-Infinity", 2021.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/optimizers/optimizers.h"
#include "parallel/plan/terms.h"
#include "parallel/rank/tier.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

// Where a rank's shards lie in the tier.
struct OffloadLayout {
  struct Group {
    Range range;  // of the unit's shard
    Count values_at = 0, states_at = 0;
  };
  struct Shard {
    Count count = 0, values_at = 0;
    std::size_t first = 0, end = 0;  // of its groups
  };
  std::vector<Group> groups;  // unit by unit
  std::vector<Shard> shards;  // by unit
  Count bytes = 0;
  Count largest = 0;  // elements of a group
};
OffloadLayout offload_layout(const Plan& plan, const RankUnits& units);

bool offloads_states(const Plan& plan);
bool offloads_parameters(const Plan& plan);

// The traffic with the tier, and the memory of what it holds: nothing if nothing is offloaded.
Terms offload_terms(const Plan& plan, int rank, const Sharding& sharding, const RankUnits& units,
                    bool computes_on_host);

class Offload {
 public:
  // Offloads the shards of this rank. Every rank of `shards` calls it. Adds waiting times to
  // `exposed`. All arguments but `units` must outlive it.
  Offload(RankContext& context, Communicator& shards, const Plan& plan, const RankUnits& units,
          Stopwatch& exposed);

  // The states of a unit's shard. `values` are used unless parameters are offloaded.
  std::unique_ptr<StateStorage> storage(std::size_t unit, Slice values);
  bool holds_parameters() const { return holds_parameters_; }
  // The shard of a unit's parameters, if the tier holds it.
  Tier::Handle read_values(std::size_t unit, Slice into);
  Tier::Handle write_values(std::size_t unit, Slice from);

  TierTraffic traffic() const { return tier_.traffic(); }

 private:
  class Storage;
  // Memory for a group. Even groups use the first buffer, odd groups the second one.
  struct Buffer {
    Tensor values, states;
    std::optional<std::size_t> group;  // the group that is being read, or has been
    std::optional<Tier::Handle> last;  // the last transfer; earlier ones are done when it is
  };

  void visit(std::size_t unit, StateAccess access, Slice values,
             const std::function<void(const StateGroup&)>& use);
  void fetch(std::size_t group, bool with_values);
  void keep(std::size_t group);
  void wait(const Buffer& buffer);
  StateGroup view(std::size_t group, Slice values) const;

  const DType dtype_;
  const Count states_;  // and masters, of each parameter
  const OffloadLayout layout_;
  const bool holds_parameters_;
  Stopwatch& exposed_;
  std::array<Buffer, 2> buffers_;
  Tier tier_;  // its thread ends before the buffers
};

}  // namespace lockstep
