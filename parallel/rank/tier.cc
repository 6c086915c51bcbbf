#include "parallel/rank/tier.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int offload_track = 4;

}  // namespace

Tier::Tier(RankContext& context, Communicator& ranks, const std::string& where, Count bytes,
           MemoryUse use)
    : trace_(context.trace),
      where_(where),
      stores_(!context.ledger.device() || context.ledger.device()->stores()),
      stream_(ranks, offload_track, "offload") {
  if (!stores_) {
    memory_ = Memory(*context.ledger.device(), &context.ledger, use, memory_bytes(where));
    return;
  }
  if (is_file(where)) {
    // On a GPU the ledger counts the GPU's memory, but the file's buffer lies on the host.
    const bool charges = !context.ledger.device() || context.ledger.device()->is_host();
    file_.emplace(fmt::format("{}.{}", where, context.world.rank()), bytes,
                  charges ? &context.ledger : nullptr, use);
    return;
  }
  memory_ = Memory(host_device(), nullptr, use, bytes);
  host_device().zero(memory_.slice(bytes, DType::u8));
}

Slice Tier::in_memory(Count offset, Slice like) const {
  return {memory_.data() + offset, like.count, like.dtype, &host_device()};
}

Tier::Handle Tier::read(Count offset, Slice into) {
  traffic_.read_bytes += moved_bytes(where_, into.bytes());
  return stream_.enqueue([this, offset, into](Communicator&) {
    if (!stores_ || into.count == 0) return;
    const Trace::Span span(trace_, offload_track, "read", "offload", into.bytes());
    if (file_)
      file_->read(offset, into);
    else
      into.device->copy(into, in_memory(offset, into));
  });
}

Tier::Handle Tier::write(Count offset, Slice from) {
  traffic_.written_bytes += moved_bytes(where_, from.bytes());
  return stream_.enqueue([this, offset, from](Communicator&) {
    if (!stores_ || from.count == 0) return;
    const Trace::Span span(trace_, offload_track, "write", "offload", from.bytes());
    if (file_)
      file_->write(offset, from);
    else
      from.device->copy(in_memory(offset, from), from);
  });
}

}  // namespace lockstep
