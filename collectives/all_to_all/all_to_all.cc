#include "collectives/all_to_all/all_to_all.h"

#include "collectives/vendor.h"

#include <numeric>

namespace lockstep {
namespace {

// The offset of each rank's elements.
std::vector<Count> offsets(std::span<const Count> counts) {
  std::vector<Count> begin(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begin.begin(), Count{0});
  return begin;
}

void check(Communicator& comm, std::string_view name, Slice slice, std::span<const Count> counts) {
  const Count sum = std::accumulate(counts.begin(), counts.end(), Count{0});
  const bool valid = std::ssize(counts) == comm.size() && sum == slice.count &&
                     std::ranges::all_of(counts, [](Count count) { return count >= 0; });
  if (valid) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("all_to_all_v: {}_counts are {} numbers of sum {} for {} elements", name,
                          counts.size(), sum, slice.count),
              {.rank = comm.rank(),
               .size = comm.size(),
               .hint = "give one count >= 0 per rank; their sum must equal the slice's count"});
}

}  // namespace

const std::vector<AllToAllAlgorithm>& all_to_all_algorithms() {
  static const std::vector<AllToAllAlgorithm> algorithms = {
      all_to_all_pairwise(), all_to_all_bruck(), all_to_all_linear(),
      vendor_algorithm<Operation::all_to_all, Slice>()};
  return algorithms;
}

void all_to_all(Communicator& comm, Slice out, Slice in, std::string_view algorithm) {
  require(
      out.count == in.count && out.dtype == in.dtype && in.count % comm.size() == 0,
      [&] {
        return fmt::format("all_to_all of {} {} into {} {} among {} ranks", in.count,
                           name_of(in.dtype), out.count, name_of(out.dtype), comm.size());
      },
      "use slices of one type and count, a multiple of the number of ranks");
  const auto& chosen =
      usable_algorithm(all_to_all_algorithms(), Operation::all_to_all, algorithm, comm, in);
  const CollectiveCall call(comm, Operation::all_to_all, chosen.name, in);
  chosen.run(comm, out, in);
}

void all_to_all_v(Communicator& comm, Slice out, std::span<const Count> out_counts, Slice in,
                  std::span<const Count> in_counts) {
  check(comm, "out", out, out_counts);
  check(comm, "in", in, in_counts);
  const int p = comm.size(), rank = comm.rank();
  const std::vector<Count> out_begin = offsets(out_counts), in_begin = offsets(in_counts);
  // Counts differ between ranks, so the signature contains only the type.
  const CollectiveCall call(comm, Operation::all_to_all, "pairwise_v", in.first(0));
  comm.copy(out.part(out_begin[rank], out_counts[rank]), in.part(in_begin[rank], in_counts[rank]));
  for (int distance = 1; distance < p; ++distance) {
    const int to = (rank + distance) % p, from = (rank - distance + p) % p;
    comm.send_recv(in.part(in_begin[to], in_counts[to]), to,
                   out.part(out_begin[from], out_counts[from]), from);
  }
}

}  // namespace lockstep
