#include "parallel/sharded/unit.h"

#include <utility>

#include "parallel/sharded/offload.h"

namespace lockstep {

Tensor BufferPool::take(Count count) {
  std::vector<Tensor>& free = free_[count];
  if (free.empty()) return {{count}, dtype_, ledger_, use_};
  Tensor tensor = std::move(free.back());
  free.pop_back();
  return tensor;
}

ShardedUnit::ShardedUnit(Parameters& all, const UnitParameters& unit, const Parts& shards, int rank,
                         const Sharding& sharding, const AdamWOptions& options, Backend& backend,
                         Ledger& ledger, Offload* offload, std::size_t number)
    : all_(all),
      numbers_(unit.parameters),
      count_(unit.count),
      first_(shards.offset(rank)),
      offload_(offload),
      number_(number) {
  Count offset = 0;
  for (const int i : numbers_) {
    list_.push_back(all.list()[static_cast<std::size_t>(i)]);
    list_.back().offset = offset;
    offset += list_.back().count;
  }
  const Count own = shards[rank];
  const auto memory = [&](Tensor& tensor, Count count, MemoryUse use) {
    tensor = Tensor({count}, all.dtype(), ledger, use);
    return tensor.slice();
  };
  if (offload && offload->holds_parameters())
    own_values_ = {.count = own, .dtype = all.dtype()};
  else if (sharding.shards_parameters())
    own_values_ = memory(own_value_memory_, own, MemoryUse::parameters);
  else
    own_values_ = memory(values_, count_, MemoryUse::parameters).part(first_, own);
  if (sharding.shards_gradients())
    own_gradients_ = memory(own_gradient_memory_, own, MemoryUse::gradients);
  else
    own_gradients_ = memory(gradients_, count_, MemoryUse::gradients).part(first_, own);
  place_values(values_.slice());
  place_gradients(gradients_.slice());
  optimizer_ = offload ? std::make_unique<AdamW>(list_, first_, own_gradients_, options, backend,
                                                 offload->storage(number, own_values_))
                       : std::make_unique<AdamW>(list_, first_, own_values_, own_gradients_,
                                                 options, backend, ledger);
}

void ShardedUnit::place_values(Slice whole) {
  for (std::size_t p = 0; p < list_.size(); ++p)
    all_.place_value(numbers_[p],
                     whole.data ? whole.part(list_[p].offset, list_[p].count) : Slice{});
}

void ShardedUnit::place_gradients(Slice whole) {
  for (std::size_t p = 0; p < list_.size(); ++p)
    all_.place_gradient(numbers_[p],
                        whole.data ? whole.part(list_[p].offset, list_[p].count) : Slice{});
}

void ShardedUnit::take_values(BufferPool& pool) {
  values_ = pool.take(count_);
  place_values(values_.slice());
}

void ShardedUnit::give_values(BufferPool& pool) {
  place_values({});
  pool.give(std::exchange(values_, {}));
}

void ShardedUnit::load(BufferPool& pool, const std::function<void()>& read) {
  take_values(pool);
  read();
  const Slice own = own_part(values());
  if (offload_ && offload_->holds_parameters())
    offload_->write_values(number_, own).wait();
  else
    own.device->copy(own_values_, own);
  give_values(pool);
}

void ShardedUnit::take_gradients(BufferPool& pool) {
  gradients_ = pool.take(count_);
  const Slice whole = gradients_.slice();
  whole.device->zero(whole);
  place_gradients(whole);
}

Tensor ShardedUnit::release_gradients() {
  place_gradients({});
  return std::exchange(gradients_, {});
}

void ShardedUnit::begin() {
  has_reduced_ = false;
  if (gradients_.count() > 0) gradients_.slice().device->zero(gradients_.slice());
}

void ShardedUnit::add_reduced(Slice part) {
  const Slice own = own_gradients_;
  if (part.data == own.data) return;
  if (std::exchange(has_reduced_, true))
    own.device->reduce(own, part, ReduceOp::sum);
  else
    own.device->copy(own, part);
}

void ShardedUnit::scatter(Slice whole, Slice flat) const {
  for (std::size_t p = 0; p < list_.size(); ++p) {
    const Parameter& in_flat = all_.list()[static_cast<std::size_t>(numbers_[p])];
    flat.device->copy(flat.part(in_flat.offset, in_flat.count),
                      whole.part(list_[p].offset, list_[p].count));
  }
}

}  // namespace lockstep
