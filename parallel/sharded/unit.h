// One unit on one rank: its shard of the flat buffer of its parameters, and the whole buffer
// while that is needed. The flat buffer is cut evenly over the ranks, whatever the tensors'
// borders.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "models/adamw.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

class Offload;

// Flat buffers that units take and give back. A buffer of the right size is used again. Not
// thread-safe.
class BufferPool {
 public:
  BufferPool(DType dtype, Ledger& ledger, MemoryUse use)
      : dtype_(dtype), ledger_(ledger), use_(use) {}
  Tensor take(Count count);
  void give(Tensor tensor) { free_[tensor.count()].push_back(std::move(tensor)); }

 private:
  DType dtype_;
  Ledger& ledger_;
  MemoryUse use_;
  std::map<Count, std::vector<Tensor>> free_;
};

class ShardedUnit {
 public:
  // Adam's states, gradients and parameters are sharded as `sharding` says; what is not sharded has
  // memory from the beginning. With `offload`, where it is unit `number`, Adam's states and
  // maybe its shard of parameters lie there. All arguments but `unit` must outlive it.
  ShardedUnit(Parameters& all, const UnitParameters& unit, const Parts& shards, int rank,
              const Sharding& sharding, const AdamWOptions& options, Backend& backend,
              Ledger& ledger, Offload* offload = nullptr, std::size_t number = 0);

  Count count() const { return count_; }
  // The rank's own part, with memory of its own or inside of the whole buffer. Offloaded values have
  // no memory.
  Slice own_values() const { return own_values_; }
  Slice own_gradients() const { return own_gradients_; }
  // The whole buffers; empty slices while they have no memory.
  Slice values() const { return values_.slice(); }
  Slice gradients() const { return gradients_.slice(); }
  // Where the rank's part lies in a whole buffer.
  Slice own_part(Slice whole) const { return whole.part(first_, own_values_.count); }

  // Gives the whole buffer memory and takes it away. Parameters have values in between.
  void take_values(BufferPool& pool);
  void give_values(BufferPool& pool);
  // The same for gradients, which begin as zero.
  void take_gradients(BufferPool& pool);
  Tensor release_gradients();
  // Keeps the rank's part of the values that read() gives to all parameters with memory.
  void load(BufferPool& pool, const std::function<void()>& read);

  // A step begins: no gradients so far.
  void begin();
  // Adds the rank's part of reduced gradients to its own.
  void add_reduced(Slice part);

  // Of the own part.
  AdamW& optimizer() { return *optimizer_; }
  // Copies the parameters of a whole buffer to their places in `flat`, the rank's flat buffer.
  void scatter(Slice whole, Slice flat) const;

 private:
  void place_values(Slice whole);
  void place_gradients(Slice whole);

  Parameters& all_;
  std::vector<int> numbers_;     // of its parameters
  std::vector<Parameter> list_;  // the same, with offsets in the unit's buffer
  Count count_, first_;          // elements of the buffer; first of the own part
  Tensor values_, gradients_;    // whole
  Tensor own_value_memory_, own_gradient_memory_;
  Slice own_values_, own_gradients_;
  bool has_reduced_ = false;  // in this step
  Offload* offload_;
  std::size_t number_;  // where it is offloaded
  std::unique_ptr<AdamW> optimizer_;
};

}  // namespace lockstep
