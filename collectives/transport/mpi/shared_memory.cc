#include "collectives/transport/mpi/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/out_of_memory.h"

namespace lockstep {

MpiSharedMemory::MpiSharedMemory(MpiGroup& group) : group_(group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  seen_.fill({std::vector<Slice>(ranks), std::vector<Slice>(ranks)});
}

SharedMemory::Shown MpiSharedMemory::rendezvous(const Call& call, Slice from, Slice into) {
  const Slice shown_from = in_heap(from, from_);
  const Slice shown_into = into.data == from.data ? shown_from : in_heap(into, into_);
  if (shown_from.data != from.data) from.device->copy(shown_from, from);
  meet(call, heaps().offset(shown_from.data), heaps().offset(shown_into.data));

  Seen& all = seen();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool own = rank == group_.rank();
    const Showcase::Shown& shown = showcase(rank).shown(rounds_);
    const int process = group_.board().world_rank(rank);
    all.from[rank] = all.into[rank] = shown_from;
    all.from[rank].data = own ? shown_from.data : heaps().at(process, shown.from);
    all.into[rank].data = own ? shown_into.data : heaps().at(process, shown.into);
  }
  return {all.from, all.into};
}

void MpiSharedMemory::withdraw(const Call& call, Slice /*from*/, Slice into) {
  const Slice shown = seen().into[group_.rank()];
  meet(call, 0, 0);
  if (shown.data != into.data) into.device->copy(into, shown);
}

std::span<const Slice> MpiSharedMemory::rendezvous_with_copy(const Call& call, Slice data) {
  Slice copy = data;
  copy.data = showcase(group_.rank()).copy(rounds_ + 1);
  data.device->copy(copy, data);
  meet(call, 0, 0);

  std::vector<Slice>& all = seen().from;
  for (int rank = 0; rank < group_.size(); ++rank) {
    all[rank] = data;
    all[rank].data = showcase(rank).copy(rounds_);
  }
  return all;
}

void MpiSharedMemory::meet(const Call& call, Count from, Count into) {
  showcase(group_.rank()).show(++rounds_, {call.signature, from, into});
  for (int other = 0; other < group_.size(); ++other)
    if (other != group_.rank()) showcase(other).wake();
  for (int other = 0; other < group_.size(); ++other) {
    if (other == group_.rank()) continue;
    await(other, call);
    group_.board().match(group_.rank(), other, call, showcase(other).shown(rounds_).signature);
  }
}

void MpiSharedMemory::await(int other, const Call& call) {
  const Showcase& theirs = showcase(other);
  int looks = 0;
  const auto has_come = [&] {
    if (theirs.shows(rounds_)) return true;
    // The other rank may first need a message of this rank. At the beginning of a wait it has
    // probably not: looking for messages often would only delay the answer.
    constexpr int early_looks = 256, early_looks_per_progress = 16;
    if (++looks > early_looks || looks % early_looks_per_progress == 0) group_.make_progress(other);
    return false;
  };
  const Pauses until_woken{
      std::chrono::microseconds(20), [&] {
        constexpr double longest_s = 0.0005;
        showcase(group_.rank()).sleep(longest_s, [&] { return theirs.shows(rounds_); });
      }};
  group_.wait(other, call, has_come, until_woken);
}

Slice MpiSharedMemory::in_heap(Slice data, Memory& substitute) {
  if (heaps().holds(data.data)) return data;
  // Shorter memory never lies in the heap.
  const Count bytes = std::max(data.bytes(), copied_bytes);
  if (substitute.bytes() < bytes)
    substitute = Memory(host_device(), nullptr, MemoryUse::communication, bytes);
  if (!heaps().holds(substitute.data()))
    throw OutOfMemory(fmt::format(
        "out of memory: {} bytes do not fit into the memory that ranks share", data.bytes()));
  return {substitute.data(), data.count, data.dtype, data.device};
}

}  // namespace lockstep
