#include "collectives/transport/mpi/vendor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/transport/mpi/types.h"

namespace lockstep {
namespace {

// Counts and displacements of the chunks, as MPI takes them.
struct Layout {
  Layout(Count count, int parts) {
    const Parts part(count, parts);
    for (int i = 0; i < parts; ++i) {
      counts.push_back(static_cast<int>(part[i]));
      places.push_back(static_cast<int>(part.offset(i)));
    }
  }
  explicit Layout(std::span<const Count> given) {
    Count place = 0;
    for (const Count count : given) {
      counts.push_back(static_cast<int>(count));
      places.push_back(static_cast<int>(place));
      place += count;
    }
    require(
        place <= std::numeric_limits<int>::max(),
        [&] { return fmt::format("MPI_Alltoallv of {} elements", place); },
        "MPI's counts are 32-bit numbers: use fewer, or longer elements");
  }
  std::vector<int> counts, places;
};

}  // namespace

std::string_view MpiCollectives::library() const {
  // Open MPI appends details after a comma, MPICH on the next line, with a tab in between.
  static const std::string name = [] {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string words(text, static_cast<std::size_t>(length));
    words = words.substr(0, words.find_first_of(",\n"));
    std::erase(words, ':');
    std::ranges::replace(words, '\t', ' ');
    const std::string version = " Version";
    if (const auto at = words.find(version); at != std::string::npos)
      words.erase(at, version.size());
    return words.substr(0, words.find_last_not_of(' ') + 1);
  }();
  return name;
}

std::string MpiCollectives::lacks(Operation, DType dtype, Count) const {
  const bool has = !is_floating(dtype) || dtype == DType::f32 || dtype == DType::f64;
  return has ? "" : fmt::format("no {}", name_of(dtype));
}

void MpiCollectives::run(Operation operation, Slice data, Slice out, ReduceOp reduction, int root,
                         RankCounts counts) {
  const MPI_Comm comm = group_.comm_to(group_.rank());
  const int p = group_.size(), rank = group_.rank(), n = static_cast<int>(data.count);
  const MPI_Datatype type = mpi_type(data.dtype);
  const MPI_Op op = mpi_op(reduction);
  const Layout chunk(data.count, p);
  const auto at = [&](int part) {
    return data.data + chunk.places[part] * element_bytes(data.dtype);
  };
  const bool at_root = rank == root;
  const auto check = [](int code) { check_mpi(code, "run its own collective"); };
  switch (operation) {
    case Operation::all_reduce: {
      const bool in_place = !out.device;
      const Slice result = in_place ? data : out;
      check(MPI_Allreduce(in_place ? MPI_IN_PLACE : data.data, result.data, n, type, op, comm));
      if (reduction == ReduceOp::avg) result.device->divide(result, p);
      return;
    }
    case Operation::reduce:
      check(MPI_Reduce(at_root ? MPI_IN_PLACE : data.data, data.data, n, type, op, root, comm));
      return;
    case Operation::reduce_scatter: {
      const Slice own{at(rank), chunk.counts[rank], data.dtype, data.device};
      const Memory memory(*data.device, nullptr, MemoryUse::communication, own.bytes());
      check(MPI_Reduce_scatter(data.data, memory.data(), chunk.counts.data(), type, op, comm));
      data.device->copy(own, memory.slice(own.count, own.dtype));
      if (reduction == ReduceOp::avg) data.device->divide(own, p);
      return;
    }
    case Operation::all_gather:
      check(MPI_Allgatherv(MPI_IN_PLACE, 0, type, data.data, chunk.counts.data(),
                           chunk.places.data(), type, comm));
      return;
    case Operation::broadcast:
      check(MPI_Bcast(data.data, n, type, root, comm));
      return;
    case Operation::gather:
      check(MPI_Gatherv(at_root ? MPI_IN_PLACE : at(rank), chunk.counts[rank], type, data.data,
                        chunk.counts.data(), chunk.places.data(), type, root, comm));
      return;
    case Operation::scatter:
      check(MPI_Scatterv(data.data, chunk.counts.data(), chunk.places.data(), type,
                         at_root ? MPI_IN_PLACE : at(rank), chunk.counts[rank], type, root, comm));
      return;
    case Operation::all_to_all:
      check(MPI_Alltoall(data.data, n / p, type, out.data, n / p, type, comm));
      return;
    case Operation::all_to_all_v: {
      const Layout from(counts.in), to(counts.out);
      check(MPI_Alltoallv(data.data, from.counts.data(), from.places.data(), type, out.data,
                          to.counts.data(), to.places.data(), type, comm));
      return;
    }
    case Operation::send_recv:
      check(MPI_Sendrecv(data.data, n, type, (rank + 1) % p, 0, out.data, n, type,
                         (rank + p - 1) % p, 0, comm, MPI_STATUS_IGNORE));
      return;
    case Operation::barrier:
      check(MPI_Barrier(comm));
      return;
  }
}

}  // namespace lockstep
