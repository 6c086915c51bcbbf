#include "collectives/transport/mpi/peer_heaps.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <vector>

#include "collectives/transport/mpi/members.h"

namespace lockstep {
namespace {

// Ranks may need different amounts of memory; none can get more than the host has.
Count heap_bytes(int processes) {
  const Count all = Count{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(all, 2 * all / processes);
}

}  // namespace

PeerHeaps* PeerHeaps::open(MPI_Comm host) {
  int processes = 0;
  MPI_Comm_size(host, &processes);
  std::unique_ptr<PeerHeaps> heaps(new PeerHeaps);
  SharedHeap::Name own{};
  std::vector<SharedHeap::Name> names(static_cast<std::size_t>(processes));
  int seen = 1;
  try {
    own = heaps->own_.emplace(heap_bytes(processes)).name();
  } catch (const std::system_error&) {
    seen = 0;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  constexpr const char* what = "exchange the names of heaps";
  check_mpi(MPI_Iallgather(&own, sizeof own, MPI_BYTE, names.data(), sizeof own, MPI_BYTE, host,
                           &request),
            what);
  await_mpi(request, what);
  try {
    for (const SharedHeap::Name& name : names) heaps->views_.emplace_back(name);
  } catch (const std::system_error&) {
    seen = 0;
  }
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &seen, 1, MPI_INT, MPI_MIN, host, &request), what);
  await_mpi(request, what);
  if (seen == 0) return nullptr;
  take_host_memory_from(*heaps->own_);
  return heaps.release();
}

}  // namespace lockstep
