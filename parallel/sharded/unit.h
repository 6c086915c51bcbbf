// One unit on one rank: its shard of the unit's parameters, and the whole parameters while they are
// needed. If the flat buffer of all parameters is cut, ranks gather and reduce directly in it. If
// parameters are split one by one, shards are padded and lie rank by rank in another buffer, from
// which parameters are copied to the whole buffer, and to which gradients are copied from there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "models/optimizers/optimizers.h"
#include "parallel/exchange/compressed_gather.h"
#include "parallel/rank/buffer_pool.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

class Offload;

class ShardedUnit {
 public:
  // The unit on place `rank` among the `ranks` that hold shards. The optimizer's states, gradients and
  // parameters are sharded as `sharding` says; what is not sharded has memory from the beginning.
  // With `offload`, where it is unit `number`, the states and maybe its shard of parameters lie
  // there. All arguments but `unit` must outlive it.
  ShardedUnit(Parameters& all, const UnitParameters& unit, int ranks, int rank,
              const Sharding& sharding, const OptimizerSettings& settings, Backend& backend,
              Ledger& ledger, Offload* offload = nullptr, std::size_t number = 0);

  // Elements of the buffer in which the unit is gathered and reduced.
  Count exchanged() const { return layout_.exchanged(); }
  // The rank's own part, with memory of its own or inside of the whole buffer. Offloaded values have
  // no memory.
  Slice own_values() const { return own_values_; }
  Slice own_gradients() const { return own_gradients_; }
  const UnitAlgorithms& algorithms() const { return algorithms_; }
  // The whole buffers; empty slices while they have no memory.
  Slice values() const { return values_.slice(); }
  Slice gradients() const { return gradients_.slice(); }
  // The rank's chunk of a buffer in which the unit is gathered or reduced.
  Slice own_chunk(Slice exchanged) const;
  // The chunks of all ranks.
  std::vector<Range> chunks() const { return layout_.chunks(); }

  // Where the rank's offloaded shard must be read to before the unit is gathered in that buffer.
  Slice landing(Slice exchanged) const;
  Slice landing() const { return landing((per_parameter_ ? gathering_ : values_).slice()); }

  // Gathering from all ranks that hold shards, or from the group that keeps them between forward and
  // backward: begin_gather() takes memory; gather() communicates, maybe in another thread; then
  // end_gather(). From then on to give_values() the parameters have values.
  void begin_gather(BufferPool& pool, bool in_group);
  // `compressed` gathers from all ranks, if there is one; groups gather what it has made.
  void gather(Communicator& comm, CompressedGather* compressed);
  void end_gather(BufferPool& pool);
  // `in_group`: leaves a shard with this rank's group.
  void give_values(BufferPool& pool, bool in_group = false);
  // Fills the rank's own values with those that read() gives to the whole parameters; passes them to
  // `keep` if they have no memory.
  void load(BufferPool& pool, const std::function<void()>& read,
            const std::function<void(Slice shard)>& keep);

  // Gives the whole buffer of gradients memory. They begin as zero.
  void take_gradients(BufferPool& pool);
  // Takes the memory of gradients away, and returns a buffer with them in which ranks can reduce
  // them.
  Tensor release_gradients(BufferPool& pool);

  // A step begins: no gradients so far.
  void begin();
  // Sums a whole buffer of gradients over the ranks. Afterwards the rank's chunk of it is the sum.
  void reduce(Communicator& comm, Slice exchanged, bool all_reduces) const;
  // Adds the rank's chunk of reduced gradients to its own; where the optimizer steps in backward, the
  // chunk becomes its own.
  void add_reduced(Slice chunk);
  // The optimizer of this rank's part.
  Optimizer& optimizer() { return *optimizer_; }
  // If parameters are not sharded: every rank has updated its own part of the values, and gets the
  // other ranks' parts.
  void gather_updated(Communicator& comm) const;

  // Gathers values or gradients, of which every rank contributes `own`, into `exchanged`, and
  // copies them to their places in `flat`, the rank's flat buffer.
  void gather_into(Communicator& comm, Slice own, Slice exchanged, Slice flat) const;

 private:
  void list_parameters(const UnitParameters& unit);
  void allocate(const Sharding& sharding, Ledger& ledger);
  void make_optimizer(const OptimizerSettings& settings, Backend& backend, Ledger& ledger,
                      Offload* offload, std::size_t number);
  void pack(const ShardLayout& layout, int rank, Slice shard, Slice exchanged) const;
  void unpack(const ShardLayout& layout, Slice exchanged,
              const std::function<Slice(std::size_t)>& parameter) const;
  Slice whole_parameter(Slice whole, std::size_t p) const {
    return whole.part(list_[p].offset, list_[p].count);
  }
  void place_values(Slice whole);
  void place_gradients(Slice whole);

  Parameters& all_;
  const ShardLayout layout_;
  const int rank_;
  std::optional<ShardLayout> group_layout_;  // of the shards between forward and backward
  const bool per_parameter_, offloads_values_, steps_in_backward_;
  const UnitAlgorithms algorithms_;
  std::vector<int> numbers_;         // of its parameters
  std::vector<Parameter> list_;      // the same, with offsets in the whole buffer
  std::vector<Parameter> own_list_;  // of this rank's rows, if parameters are split one by one
  Tensor values_, gradients_;        // whole
  Tensor gathering_;         // used until the end of a gather, if parameters are split one by one
  Tensor group_shard_;       // between forward and backward
  bool from_group_ = false;  // the gather that has begun
  Tensor own_value_memory_, own_gradient_memory_;
  Slice own_values_, own_gradients_;
  bool has_reduced_ = false;  // in this step
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace lockstep
