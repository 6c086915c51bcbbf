#include "parallel/sharded/reducer.h"

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr int between_track = 2;

}  // namespace

GradientReducer::GradientReducer(Communicator& shards, Communicator& between, const Plan& plan,
                                 const Sharding& sharding, const ShardedUnit& largest,
                                 BufferPool& buffers, Stream* stream, Stopwatch& exposed)
    : shards_(shards),
      between_(between),
      sharding_(sharding),
      buffers_(buffers),
      exchange_(plan, shards.size() * between.size(), stream ? stream->communicator() : shards,
                largest.own_gradients(), largest.exchanged()),
      exposed_(exposed),
      stream_(stream) {
  if (plan.compresses_gradients() && shards.size() > 1)
    compressed_ = make_compressed_scatter(
        exchange_from_text(plan.options.exchange), plan.options.dtype, largest.chunks(),
        stream ? stream->communicator() : shards, *largest.own_gradients().device);
  if (stream && between.size() > 1) between_stream_.emplace(between, between_track, "replicas");
}

void GradientReducer::reduce(ShardedUnit& unit, bool is_last) {
  // At most one buffer is being reduced while the next unit fills another one. Under a pipeline, all
  // units have their gradients anyway.
  const bool returns_buffer = sharding_.shards_gradients();
  while (returns_buffer && !sharding_.by_stage && !reductions_.empty()) finish_oldest();
  Reduction& reduction = reductions_.emplace_back(Reduction{&unit, is_last, {}, {}});
  if (returns_buffer) reduction.buffer = unit.release_gradients(buffers_);
  const Slice all = returns_buffer ? reduction.buffer.slice() : unit.gradients();
  const auto work = [this, &unit, all](Communicator& comm) { reduce_on(comm, unit, all); };
  if (stream_) {
    reduction.handle = stream_->enqueue(work);
    return;
  }
  exposed_.time([&] { work(shards_); });
  finish_oldest();
}

void GradientReducer::reduce_on(Communicator& comm, ShardedUnit& unit, Slice all) {
  comm.set_label("gradients");
  const auto own = [&](Slice gradients) { return unit.own_chunk(gradients); };
  if (compressed_) {
    compressed_->run(comm, all, unit.chunks());
    return unit.add_reduced(own(all));
  }
  exchange_.run(
      all, [&](Slice encoded) { unit.reduce(comm, encoded, sharding_.all_reduces_gradients); },
      own);
  unit.add_reduced(own(all));
}

void GradientReducer::finish_oldest() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  if (reduction.handle) exposed_.time([&] { reduction.handle->wait(); });
  if (step_unit_) {
    if (between_.size() > 1) reduce_between(*reduction.unit);
    wait_for_replicas();
    step_unit_(*reduction.unit);
  }
  if (reduction.buffer.count() > 0) buffers_.give(std::move(reduction.buffer));
  if (!step_unit_ && reduction.is_last && between_.size() > 1) reduce_between(*reduction.unit);
}

void GradientReducer::reduce_between(ShardedUnit& unit) {
  const auto work = [&unit](Communicator& comm) {
    comm.set_label("gradients of replicas");
    all_reduce(comm, unit.own_gradients(), ReduceOp::sum, unit.algorithms().between);
  };
  if (between_stream_)
    between_replicas_.push_back(between_stream_->enqueue(work));
  else
    exposed_.time([&] { work(between_); });
}

void GradientReducer::finish() {
  while (!reductions_.empty()) finish_oldest();
  wait_for_replicas();
}

void GradientReducer::wait_for_replicas() {
  exposed_.time([&] {
    for (Stream::Handle& handle : between_replicas_) handle.wait();
  });
  between_replicas_.clear();
}

}  // namespace lockstep
