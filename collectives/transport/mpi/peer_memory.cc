#include "collectives/transport/mpi/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collectives/transport/mpi/members.h"

namespace lockstep {

std::string refused_peer_memory(MPI_Comm comm) {
  struct Place {
    std::int64_t process;
    std::uint64_t address;
  };
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::uint64_t probe = 1, read = 0;
  const Place own{getpid(), reinterpret_cast<std::uint64_t>(&probe)};
  std::vector<Place> places(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  constexpr const char* what = "find out whether ranks may read each other's memory";
  check_mpi(MPI_Iallgather(&own, sizeof own, MPI_BYTE, places.data(), sizeof own, MPI_BYTE, comm,
                           &request),
            what);
  await_mpi(request, what);
  const Place& next = places[static_cast<std::size_t>((rank + 1) % size)];
  const iovec here{&read, sizeof read}, there{reinterpret_cast<void*>(next.address), sizeof read};
  const auto process = static_cast<pid_t>(next.process);
  int reason = process_vm_readv(process, &here, 1, &there, 1, 0) == sizeof read ? 0 : errno;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &reason, 1, MPI_INT, MPI_MAX, comm, &request), what);
  await_mpi(request, what);
  return reason == 0 ? "" : std::strerror(reason);
}

}  // namespace lockstep
