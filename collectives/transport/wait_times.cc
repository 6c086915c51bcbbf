#include "collectives/transport/wait_times.h"

#include <algorithm>

namespace lockstep {

WaitTimes::~WaitTimes() {
  const std::unique_ptr<Table> table(table_.load());
  if (!table) return;
  for (auto& block : *table) delete block.load();
}

WaitTimes::Seconds& WaitTimes::of_later(int peer) {
  const auto number = static_cast<std::size_t>(peer / block_peers);
  const Table* const table = table_.load(std::memory_order_acquire);
  Block* const block = table ? (*table)[number].load() : nullptr;
  return (block ? *block : added(number))[static_cast<std::size_t>(peer % block_peers)];
}

WaitTimes::Block& WaitTimes::added(std::size_t number) {
  const std::lock_guard lock(mutex_);
  if (!table_.load()) table_.store(new Table(static_cast<std::size_t>(ranks_ / block_peers + 1)));
  std::atomic<Block*>& place = (*table_.load())[number];
  if (!place.load()) place.store(new Block{});
  return *place.load();
}

std::vector<WaitTimes::Waited> WaitTimes::by_peer() const {
  std::vector<Waited> all;
  for (const Place& place : first_)
    if (const int holder = place.holder.load(); holder > 0 && place.seconds.load() > 0)
      all.push_back({holder - 1, place.seconds.load()});
  const Table* const table = table_.load();
  for (std::size_t number = 0; table && number < table->size(); ++number) {
    const Block* const block = (*table)[number].load();
    for (int i = 0; block && i < block_peers; ++i)
      if (const double seconds = (*block)[static_cast<std::size_t>(i)].load(); seconds > 0)
        all.push_back({static_cast<int>(number) * block_peers + i, seconds});
  }
  std::ranges::sort(all, {}, &Waited::peer);
  return all;
}

}  // namespace lockstep
