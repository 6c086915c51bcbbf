#include "parallel/expert/parts.h"

#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {
namespace {

// Elements of each rank, if all rows have equally many.
UnevenChunks in_parts(Slice rows, std::span<const Count> counts) {
  const Count all = std::accumulate(counts.begin(), counts.end(), Count{0});
  std::vector<Count> elements(counts.begin(), counts.end());
  for (Count& count : elements) count = all > 0 ? count * (rows.count / all) : 0;
  return {rows, elements};
}

}  // namespace

template <typename Exchange>
void ExpertParts::wait(const char* label, Exchange exchange) {
  comm_->set_label(label);
  const Trace::Span span(comm_->records().trace, 0, "wait for the other parts of experts", "wait");
  waiting_->time(exchange);
}

void ExpertParts::gather_counts(const char* label, Routing& routing) {
  const auto choose_alike = [&] {
    routing.arriving_of_parts.clear();
    for (int rank = 0; rank < split_.gathered_ranks(); ++rank)
      routing.arriving_of_parts.insert(routing.arriving_of_parts.end(), routing.arriving.begin(),
                                       routing.arriving.end());
  };
  choose_alike();
  if (!comm_ || split_.gathered_ranks() == 1) return;
  wait(label, [&] { all_gather(*comm_, host_slice(std::span(routing.arriving_of_parts))); });
  if (!comm_->has_peers()) choose_alike();
}

// A ring: each rank's rows travel once around it.
void ExpertParts::gather(const char* label, Slice rows, std::span<const Count> counts) {
  if (!comm_ || split_.gathered_ranks() == 1) return;
  const UnevenChunks part = in_parts(rows, counts);
  const int p = comm_->size(), rank = comm_->rank();
  comm_->announce(Operation::all_gather, rows, rows);
  wait(label, [&] {
    const CollectiveCall call(*comm_, Operation::all_gather, "ring", rows.first(0));
    for (int step = 0; step < p - 1; ++step)
      comm_->send_recv(part[(rank - step + p) % p], comm_->right(), part[(rank - 1 - step + p) % p],
                       comm_->left());
  });
}

// The same, but every rank adds its part of the sum.
void ExpertParts::sum(const char* label, Slice rows, std::span<const Count> counts) {
  if (!comm_ || split_.tensor_ranks == 1) return;
  if (!split_.by_sequence) return wait(label, [&] { all_reduce(*comm_, rows); });
  const UnevenChunks part = in_parts(rows, counts);
  const int p = comm_->size(), rank = comm_->rank();
  wait(label, [&] {
    const CollectiveCall call(*comm_, Operation::reduce_scatter, "ring", rows.first(0));
    for (int step = 0; step < p - 1; ++step)
      comm_->send_recv_reduce(part[(rank - 1 - step + p) % p], comm_->right(),
                              part[(rank - 2 - step + 2 * p) % p], comm_->left(), ReduceOp::sum);
  });
  comm_->announce(Operation::reduce_scatter, rows, part[rank]);
}

void ExpertParts::announce_own(Slice rows) {
  if (comm_ && split_.by_sequence) comm_->announce(Operation::scatter, rows, rows);
}

Traffic ExpertParts::traffic_of_counts(const ExpertSplit& split, Count experts) {
  const int others = split.gathered_ranks() - 1;
  const Count gathered = others * split.ranks * split.experts(experts);
  return {others, gathered, others, gathered};
}

Traffic ExpertParts::traffic_of_rows(const ExpertSplit& split, std::span<const Count> counts,
                                     Count columns) {
  const int t = split.tensor_ranks, here = split.tensor_rank;
  if (t == 1) return {};
  if (!split.by_sequence)
    return find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
        .traffic({.ranks = t, .count = counts.front() * columns}, here);
  const Count all = std::accumulate(counts.begin(), counts.end(), Count{0});
  // Gathering, a rank does not send what its right neighbour provides. Adding up, it keeps its own, and
  // its left neighbour's are complete elsewhere.
  const auto without = [&](int rank) {
    return (all - counts[static_cast<std::size_t>((rank + t) % t)]) * columns;
  };
  return Traffic{t - 1, without(here + 1), t - 1, without(here)} +
         Traffic{t - 1, without(here), t - 1, without(here - 1)};
}

}  // namespace lockstep
