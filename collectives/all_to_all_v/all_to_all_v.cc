#include "collectives/all_to_all_v/all_to_all_v.h"

#include <numeric>

#include "collectives/vendor.h"

namespace lockstep {
namespace {

void check(const Communicator& comm, std::string_view name, Slice slice,
           std::span<const Count> counts) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::bad_input, fmt::format("all_to_all_v: {}", what),
                {.rank = comm.rank(),
                 .size = comm.size(),
                 .hint = "give one count >= 0 for each rank; their sum is the slice's count"});
  };
  if (std::ssize(counts) != comm.size())
    refuse(fmt::format("{} counts of {} for {} ranks", counts.size(), name, comm.size()));
  for (int other = 0; other < comm.size(); ++other)
    if (counts[other] < 0) refuse(fmt::format("{}[{}] is {}", name, other, counts[other]));
  const Count sum = std::accumulate(counts.begin(), counts.end(), Count{0});
  if (sum != slice.count)
    refuse(
        fmt::format("the counts of {} sum to {}, but it has {} elements", name, sum, slice.count));
}

}  // namespace

UnevenChunks::UnevenChunks(Slice whole, std::span<const Count> counts)
    : whole_(whole), begin_(counts.size() + 1) {
  std::inclusive_scan(counts.begin(), counts.end(), begin_.begin() + 1);
}

Slice UnevenChunks::operator[](int i) const {
  const auto place = static_cast<std::size_t>(i);
  return whole_.part(begin_[place], begin_[place + 1] - begin_[place]);
}

Count pair_count(const Problem& x, int from, int to) {
  return x.counts.empty() ? x.count / x.ranks : x.counts(from, to);
}

Traffic all_to_all_v_traffic(const Problem& x, int rank) {
  Traffic total;
  for (int other = 0; other < x.ranks; ++other)
    if (other != rank) total += {1, pair_count(x, rank, other), 1, pair_count(x, other, rank)};
  return total;
}

bool stays_in_step(const Problem& x) {
  if (x.ranks == 2) return true;
  for (int distance = 1; distance < x.ranks; ++distance)
    for (int rank = 1; rank < x.ranks; ++rank)
      if (pair_count(x, rank, (rank + distance) % x.ranks) != pair_count(x, 0, distance))
        return false;
  return true;
}

Busiest busiest(const Problem& x) {
  Busiest most;
  for (int rank = 0; rank < x.ranks; ++rank) {
    const Traffic own = all_to_all_v_traffic(x, rank);
    const Count elements = std::max(own.sent_elements, own.received_elements);
    if (elements > most.elements)
      most = {rank, elements, own.received_elements > own.sent_elements};
  }
  return most;
}

const std::vector<AllToAllVAlgorithm>& all_to_all_v_algorithms() {
  static const std::vector<AllToAllVAlgorithm> algorithms = {
      all_to_all_v_pairwise(), all_to_all_v_linear(),
      vendor_algorithm<Operation::all_to_all_v, Slice, RankCounts>()};
  return algorithms;
}

void all_to_all_v(Communicator& comm, Slice out, Slice in, RankCounts counts,
                  std::string_view algorithm) {
  check(comm, "in", in, counts.in);
  check(comm, "out", out, counts.out);
  const Count to_itself = counts.in[comm.rank()], from_itself = counts.out[comm.rank()];
  require(
      out.dtype == in.dtype && to_itself == from_itself,
      [&] {
        return fmt::format("all_to_all_v: rank {} sends itself {} {} and receives {} {}",
                           comm.rank(), to_itself, name_of(in.dtype), from_itself,
                           name_of(out.dtype));
      },
      "use slices of one type, and one count for what a rank sends itself");
  // Counts differ between ranks, so neither the choice of the algorithm nor the signature may
  // depend on them.
  const Slice without_count = in.first(0);
  const auto& chosen = usable_algorithm(all_to_all_v_algorithms(), Operation::all_to_all_v,
                                        algorithm, comm, without_count);
  const CollectiveCall call(comm, Operation::all_to_all_v, chosen.name, without_count);
  chosen.run(comm, out, in, counts);
}

}  // namespace lockstep
