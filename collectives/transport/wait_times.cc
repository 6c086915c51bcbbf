#include "collectives/transport/wait_times.h"

namespace lockstep {

WaitTimes::~WaitTimes() {
  const std::unique_ptr<Table> table(table_.load());
  if (!table) return;
  for (auto& block : *table) delete block.load();
}

WaitTimes::Block& WaitTimes::added(int peer) {
  const std::lock_guard lock(mutex_);
  if (!table_.load()) table_.store(new Table(static_cast<std::size_t>(ranks_ / block_peers + 1)));
  std::atomic<Block*>& place = (*table_.load())[static_cast<std::size_t>(peer / block_peers)];
  if (!place.load()) place.store(new Block{});
  return *place.load();
}

std::vector<WaitTimes::Waited> WaitTimes::by_peer() const {
  std::vector<Waited> all;
  const Table* const table = table_.load();
  for (std::size_t number = 0; table && number < table->size(); ++number) {
    const Block* const block = (*table)[number].load();
    for (int i = 0; block && i < block_peers; ++i)
      if (const double seconds = (*block)[static_cast<std::size_t>(i)].load(); seconds > 0)
        all.push_back({static_cast<int>(number) * block_peers + i, seconds});
  }
  return all;
}

}  // namespace lockstep
