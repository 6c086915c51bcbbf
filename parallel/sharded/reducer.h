// Reduces gradients of units: sums them over the ranks that hold the shards, adds each rank's part to
// its shard, and at the end of a step sums the shards between replicas of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/stream.h"
#include "parallel/exchange/compressed_scatter.h"
#include "parallel/rank/gradient_exchange.h"
#include "parallel/sharded/unit.h"

namespace lockstep {

class GradientReducer {
 public:
  // `shards` are the ranks that hold the shards, `between` the ranks that hold the same shards in
  // other replicas. Works on `stream` if there is one. `largest` exchanges the most. Adds waiting times
  // to `exposed`. All arguments must outlive it.
  GradientReducer(Communicator& shards, Communicator& between, const Plan& plan,
                  const Sharding& sharding, const ShardedUnit& largest, BufferPool& buffers,
                  Stream* stream, Stopwatch& exposed);

  // From now on calls `step_unit` as soon as a unit's gradients are reduced, also between replicas, and
  // before the unit's buffer goes back to the pool.
  void step_in_backward(std::function<void(ShardedUnit&)> step_unit) {
    step_unit_ = std::move(step_unit);
  }

  // Begins to reduce the unit's gradients. `is_last`: nothing more will be added to them in this
  // step. If gradients are sharded, takes the unit's buffer away and gives it back to the pool
  // later.
  void reduce(ShardedUnit& unit, bool is_last);
  // Returns when all gradients are reduced.
  void finish();

  // The seconds for which its stream between replicas has worked.
  double busy_seconds() const { return between_stream_ ? between_stream_->busy_seconds() : 0; }

 private:
  struct Reduction {
    ShardedUnit* unit;
    bool is_last;
    Tensor buffer;
    std::optional<Stream::Handle> handle;
  };

  void reduce_on(Communicator& comm, ShardedUnit& unit, Slice all);
  void finish_oldest();
  void reduce_between(ShardedUnit& unit);
  void wait_for_replicas();

  Communicator& shards_;
  Communicator& between_;
  const Sharding& sharding_;
  BufferPool& buffers_;
  GradientExchange exchange_;
  std::unique_ptr<CompressedScatter> compressed_;  // instead, if the plan says so
  Stopwatch& exposed_;
  std::deque<Reduction> reductions_;
  std::deque<Stream::Handle> between_replicas_;
  std::function<void(ShardedUnit&)> step_unit_;  // null: after backward
  Stream* stream_;
  std::optional<Stream> between_stream_;
};

}  // namespace lockstep
