#include "parallel/sharded/unit.h"

#include <utility>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "parallel/sharded/offload.h"

namespace lockstep {

// lab: unit
ShardedUnit::ShardedUnit(Parameters& all, const UnitParameters& unit, int ranks, int rank,
                         const Sharding& sharding, const OptimizerSettings& settings,
                         Backend& backend, Ledger& ledger, Offload* offload, std::size_t number)
    : all_(all),
      layout_(unit.layout(ranks)),
      rank_(rank),
      per_parameter_(unit.per_parameter),
      offloads_values_(offload && offload->holds_parameters()),
      steps_in_backward_(sharding.steps_in_backward),
      algorithms_(unit.algorithms),
      numbers_(unit.parameters) {
  if (sharding.group_ranks > 0) group_layout_ = unit.layout(sharding.group_ranks);
  list_parameters(unit);
  allocate(sharding, ledger);
  place_values(values_.slice());
  if (!sharding.trains) return;
  place_gradients(gradients_.slice());
  make_optimizer(settings, backend, ledger, offload, number);
}

Slice ShardedUnit::own_chunk(Slice exchanged) const {
  // lab: solution
  const Range chunk = layout_.chunk(rank_);
  return exchanged.part(chunk.first, chunk.count);
  // lab: given
}

// Sharded data get memory for this rank's part only. Other data are whole, and this rank's part
// lies inside.
void ShardedUnit::allocate(const Sharding& sharding, Ledger& ledger) {
  const Count whole = layout_.count(), own = layout_.shard(rank_);
  const auto memory = [&](Tensor& tensor, Count elements, MemoryUse use) {
    tensor = Tensor({elements}, all_.dtype(), ledger, use);
    return tensor.slice();
  };
  if (offloads_values_)
    own_values_ = {.count = own, .dtype = all_.dtype()};
  else if (sharding.shards_parameters())
    own_values_ = memory(own_value_memory_, own, MemoryUse::parameters);
  else
    // lab: solution
    own_values_ = own_chunk(memory(values_, whole, MemoryUse::parameters));
  // lab: given
  if (!sharding.trains) return;
  if (steps_in_backward_)
    own_gradients_ = {.count = own,
                      .dtype = all_.dtype(),
                      .device = ledger.device() ? ledger.device() : &host_device()};
  else if (sharding.shards_gradients())
    own_gradients_ = memory(own_gradient_memory_, own, MemoryUse::gradients);
  else
    // lab: solution
    own_gradients_ = own_chunk(memory(gradients_, whole, MemoryUse::gradients));
  // lab: given
}

void ShardedUnit::make_optimizer(const OptimizerSettings& settings, Backend& backend,
                                 Ledger& ledger, Offload* offload, std::size_t number) {
  const std::vector<Parameter>& list = per_parameter_ ? own_list_ : list_;
  // lab: solution
  const Count first = per_parameter_ ? 0 : layout_.chunk(rank_).first;
  optimizer_ =
      offload ? new_optimizer(settings, list, first, own_gradients_, backend,
                              offload->storage(number, own_values_))
              : new_optimizer(settings, list, first, own_values_, own_gradients_, backend, ledger);
  // lab: given
}

void ShardedUnit::reduce(Communicator& comm, Slice exchanged, bool all_reduces) const {
  // lab: solution
  if (all_reduces)
    all_reduce(comm, exchanged, ReduceOp::sum, algorithms_.reduce);
  else
    reduce_scatter(comm, exchanged, ReduceOp::sum, algorithms_.reduce);
  // lab: given
  if (all_reduces) comm.announce(Operation::scatter, exchanged, own_chunk(exchanged));
}

void ShardedUnit::gather_updated(Communicator& comm) const {
  // lab: solution
  all_gather(comm, values(), algorithms_.gather);
  // lab: given
}
// lab: end

void ShardedUnit::list_parameters(const UnitParameters& unit) {
  Count offset = 0;
  for (const int i : numbers_) {
    list_.push_back(all_.list()[static_cast<std::size_t>(i)]);
    list_.back().offset = offset;
    offset += list_.back().count;
  }
  if (!per_parameter_) return;
  for (const ShardLayout::Piece& piece : layout_.pieces(rank_)) {
    const Count columns = unit.extents[piece.parameter].columns;
    own_list_.push_back(rows_of(list_[piece.parameter],
                                {piece.range.first / columns, piece.range.count / columns},
                                piece.in_shard));
  }
}

void ShardedUnit::place_values(Slice whole) {
  for (std::size_t p = 0; p < list_.size(); ++p)
    all_.place_value(numbers_[p], whole.data ? whole_parameter(whole, p) : Slice{});
}

void ShardedUnit::place_gradients(Slice whole) {
  for (std::size_t p = 0; p < list_.size(); ++p)
    all_.place_gradient(numbers_[p], whole.data ? whole_parameter(whole, p) : Slice{});
}

// Copies a rank's shard to its chunk. Padding becomes zero.
void ShardedUnit::pack(const ShardLayout& layout, int rank, Slice shard, Slice exchanged) const {
  const auto [first, count] = layout.chunk(rank);
  const Slice chunk = exchanged.part(first, count);
  if (chunk.data == shard.data && count == shard.count) return;
  if (count == shard.count) return chunk.device->copy(chunk, shard);
  chunk.device->zero(chunk);
  for (const ShardLayout::Piece& piece : layout.pieces(rank))
    chunk.device->copy(chunk.part(piece.in_chunk, piece.range.count),
                       shard.part(piece.in_shard, piece.range.count));
}

// Copies the contents of all ranks' chunks to the parameters.
void ShardedUnit::unpack(const ShardLayout& layout, Slice exchanged,
                         const std::function<Slice(std::size_t)>& parameter) const {
  for (int rank = 0; rank < layout.ranks(); ++rank)
    for (const ShardLayout::Piece& piece : layout.pieces(rank))
      exchanged.device->copy(
          parameter(piece.parameter).part(piece.range.first, piece.range.count),
          exchanged.part(layout.chunk(rank).first + piece.in_chunk, piece.range.count));
}

// This rank's chunk or, if it has padding, the next rank's chunk, from which the shard is then
// copied.
Slice ShardedUnit::landing(Slice exchanged) const {
  const bool is_padded = layout_.chunk(rank_).count != own_values_.count;
  const Range chunk = layout_.chunk(is_padded ? (rank_ + 1) % layout_.ranks() : rank_);
  return exchanged.part(chunk.first, own_values_.count);
}

void ShardedUnit::begin_gather(BufferPool& pool, bool in_group) {
  from_group_ = in_group;
  (per_parameter_ ? gathering_ : values_) =
      pool.take((in_group ? *group_layout_ : layout_).exchanged());
}

void ShardedUnit::gather(Communicator& comm, CompressedGather* compressed) {
  const Slice into = (per_parameter_ ? gathering_ : values_).slice();
  if (from_group_)
    pack(*group_layout_, rank_ % group_layout_->ranks(), group_shard_.slice(), into);
  else
    pack(layout_, rank_, offloads_values_ ? landing(into) : own_values_, into);
  if (compressed && !from_group_)
    return compressed->run(comm, into, layout_.chunks(), algorithms_.gather);
  all_gather(comm, into, from_group_ ? algorithms_.gather_in_group : algorithms_.gather);
}

void ShardedUnit::end_gather(BufferPool& pool) {
  if (per_parameter_) {
    values_ = pool.take(layout_.count());
    unpack(from_group_ ? *group_layout_ : layout_, gathering_.slice(),
           [&](std::size_t p) { return whole_parameter(values_.slice(), p); });
    pool.give(std::exchange(gathering_, {}));
  }
  if (from_group_) pool.give(std::exchange(group_shard_, {}));
  place_values(values_.slice());
}

void ShardedUnit::give_values(BufferPool& pool, bool in_group) {
  if (in_group) {
    const int rank = rank_ % group_layout_->ranks();
    group_shard_ = pool.take(group_layout_->shard(rank));
    const Slice shard = group_shard_.slice();
    for (const ShardLayout::Piece& piece : group_layout_->pieces(rank))
      shard.device->copy(shard.part(piece.in_shard, piece.range.count),
                         whole_parameter(values_.slice(), piece.parameter)
                             .part(piece.range.first, piece.range.count));
  }
  place_values({});
  pool.give(std::exchange(values_, {}));
}

void ShardedUnit::load(BufferPool& pool, const std::function<void()>& read,
                       const std::function<void(Slice)>& keep) {
  values_ = pool.take(layout_.count());
  place_values(values_.slice());
  read();
  Tensor buffer;
  Slice shard = own_values_;
  if (offloads_values_ && per_parameter_) {
    buffer = pool.take(layout_.exchanged());
    shard = buffer.slice().first(shard.count);
  }
  if (offloads_values_ && !per_parameter_)
    shard = own_chunk(values_.slice());
  else
    for (const ShardLayout::Piece& piece : layout_.pieces(rank_))
      shard.device->copy(shard.part(piece.in_shard, piece.range.count),
                         whole_parameter(values_.slice(), piece.parameter)
                             .part(piece.range.first, piece.range.count));
  if (offloads_values_) keep(shard);
  if (buffer.count() > 0) pool.give(std::move(buffer));
  give_values(pool);
}

void ShardedUnit::take_gradients(BufferPool& pool) {
  gradients_ = pool.take(layout_.count());
  const Slice whole = gradients_.slice();
  whole.device->zero(whole);
  place_gradients(whole);
}

Tensor ShardedUnit::release_gradients(BufferPool& pool) {
  place_gradients({});
  if (!per_parameter_) return std::exchange(gradients_, {});
  Tensor buffer = pool.take(layout_.exchanged());
  const Slice exchanged = buffer.slice();
  if (exchanged.count != layout_.count()) exchanged.device->zero(exchanged);
  for (int rank = 0; rank < layout_.ranks(); ++rank)
    for (const ShardLayout::Piece& piece : layout_.pieces(rank))
      exchanged.device->copy(
          exchanged.part(layout_.chunk(rank).first + piece.in_chunk, piece.range.count),
          whole_parameter(gradients_.slice(), piece.parameter)
              .part(piece.range.first, piece.range.count));
  pool.give(std::exchange(gradients_, {}));
  return buffer;
}

void ShardedUnit::begin() {
  has_reduced_ = false;
  if (gradients_.count() > 0) gradients_.slice().device->zero(gradients_.slice());
}

void ShardedUnit::add_reduced(Slice chunk) {
  if (steps_in_backward_) return optimizer_->take_gradients(own_gradients_ = chunk);
  const Slice own = own_gradients_;
  if (chunk.data == own.data) return;
  const bool adds = std::exchange(has_reduced_, true);
  const auto put = [&](Slice into, Slice from) {
    if (adds)
      into.device->reduce(into, from, ReduceOp::sum);
    else
      into.device->copy(into, from);
  };
  if (chunk.count == own.count) return put(own, chunk);
  for (const ShardLayout::Piece& piece : layout_.pieces(rank_))
    put(own.part(piece.in_shard, piece.range.count), chunk.part(piece.in_chunk, piece.range.count));
}

void ShardedUnit::gather_into(Communicator& comm, Slice own, Slice exchanged, Slice flat) const {
  pack(layout_, rank_, own, exchanged);
  all_gather(comm, exchanged);
  unpack(layout_, exchanged, [&](std::size_t p) {
    const Parameter& parameter = all_.list()[static_cast<std::size_t>(numbers_[p])];
    return flat.part(parameter.offset, parameter.count);
  });
}

}  // namespace lockstep
