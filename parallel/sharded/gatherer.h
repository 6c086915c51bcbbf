// Gathers parameters of units, in the background if there is a stream.
#pragma once

#include <deque>
#include <optional>

#include "collectives/stream.h"
#include "parallel/sharded/offload.h"
#include "parallel/sharded/unit.h"

namespace lockstep {

class ParameterGatherer {
 public:
  // `shards` are the ranks that hold the shards, `group` those that keep them between forward and
  // backward, if any do. Every rank of `shards` calls it. `offload` may hold the shards, `stream` may
  // be null. `largest` exchanges the most. Adds waiting times to `exposed`. All arguments must outlive
  // it.
  ParameterGatherer(Communicator& shards, Communicator* group, const Plan& plan,
                    const Sharding& sharding, std::deque<ShardedUnit>& units,
                    const ShardedUnit& largest, BufferPool& buffers, Offload* offload,
                    Stream* stream, Stopwatch& exposed);

  // If parameters are sharded: begins to gather a unit's parameters, and frees them. `in_group`:
  // gathers from the group of ranks that keeps them between forward and backward, and leaves them
  // with it.
  void gather(std::size_t unit, bool in_group = false);
  void free(std::size_t unit, bool in_group = false);
  // If every rank holds all parameters: begins to gather the parts that each rank has updated.
  void gather_updated(std::size_t unit);

  // Returns when the unit's parameters have their values.
  void wait(std::size_t unit);
  void wait_for_all();

 private:
  struct Gather {
    bool is_pending = false;
    std::optional<Stream::Handle> handle;  // none without a stream
  };
  void begin(std::size_t unit, const std::function<void(Communicator&)>& work);

  Communicator& shards_;
  Communicator* group_;  // for the stream's thread, if there is one
  std::optional<Communicator> group_of_stream_;
  const Sharding& sharding_;
  std::deque<ShardedUnit>& units_;
  BufferPool& buffers_;
  Offload* offload_;
  std::unique_ptr<CompressedGather> compressed_;  // if the plan says so
  Stream* stream_;
  Stopwatch& exposed_;
  std::vector<Gather> gathers_;  // by unit
};

}  // namespace lockstep
