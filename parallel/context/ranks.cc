#include "parallel/context/ranks.h"

#include <vector>

#include "parallel/context/gather.h"
#include "parallel/context/ring.h"

namespace lockstep {
namespace {

// Tracks in a trace, after those of messages.
constexpr int between_track = 60, inside_track = 61;

// Ranks first, first + stride, ...
std::unique_ptr<Communicator> every(Communicator* comm, int first, int stride, int count) {
  if (!comm || count == 1) return nullptr;
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
  return comm->subgroup(members);
}

std::unique_ptr<KeyValues> make_key_values(Exchange& exchange, const ContextSplit& split) {
  if (split.groups() == 1) return std::make_unique<OwnKeyValues>();
  if (split.rings)
    return std::make_unique<Ring>(exchange, split.groups(), split.group(), split.returns_all_hops);
  return std::make_unique<Gather>(exchange, split.groups(), split.group());
}

}  // namespace

ContextRanks::ContextRanks(Communicator& comm, const ContextSplit& split, Ledger& ledger)
    : ContextRanks(&comm, split, ledger) {}
ContextRanks::ContextRanks(const ContextSplit& split, Ledger& ledger)
    : ContextRanks(nullptr, split, ledger) {}

ContextRanks::ContextRanks(Communicator* comm, const ContextSplit& split, Ledger& ledger)
    : split_(split),
      between_ranks_(every(comm, split.heads().rank, split.ranks_of_group(), split.groups())),
      inside_ranks_(every(comm, split.group() * split.ranks_of_group(), 1, split.ranks_of_group())),
      key_values_(make_key_values(between_, split)),
      ulysses_(inside_, split.heads()),
      between_(between_ranks_.get(), between_track, ledger),
      inside_(inside_ranks_.get(), inside_track, ledger) {}

}  // namespace lockstep
