#include "parallel/expert/parts.h"

#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "parallel/expert/dispatcher.h"
#include "parallel/expert/uneven_ring.h"

namespace lockstep {
namespace {

UnevenChunks in_parts(Slice rows, std::span<const Count> counts) {
  const Count all = std::reduce(counts.begin(), counts.end());
  return {rows, in_elements({counts.begin(), counts.end()}, all > 0 ? rows.count / all : 0)};
}

}  // namespace

template <typename Exchange>
void ExpertParts::wait(const char* label, Exchange exchange) {
  comm_->set_label(label);
  const Trace::Span span(comm_->records().trace, 0, "wait for the other parts of experts", "wait");
  waiting_->time(exchange);
}

void ExpertParts::gather_counts(const char* label, const std::vector<Count>& own,
                                std::vector<Count>& of_parts) {
  const auto repeat = [&] {
    of_parts.clear();
    for (int rank = 0; rank < split_.gathered_ranks(); ++rank)
      of_parts.insert(of_parts.end(), own.begin(), own.end());
  };
  repeat();
  if (!comm_ || split_.gathered_ranks() == 1) return;
  wait(label, [&] { all_gather(*comm_, host_slice(std::span(of_parts))); });
  if (!comm_->has_peers()) repeat();
}

void ExpertParts::gather(const char* label, Slice rows, std::span<const Count> counts) {
  if (!comm_ || split_.gathered_ranks() == 1) return;
  const UnevenChunks part = in_parts(rows, counts);
  comm_->announce(Operation::all_gather, rows, rows);
  wait(label, [&] {
    const CollectiveCall call(*comm_, Operation::all_gather, "ring", rows.first(0));
    ring_gather(*comm_, part);
  });
}

void ExpertParts::sum(const char* label, Slice rows, std::span<const Count> counts) {
  if (!comm_ || split_.tensor_ranks == 1) return;
  if (!split_.by_sequence) return wait(label, [&] { all_reduce(*comm_, rows); });
  const UnevenChunks part = in_parts(rows, counts);
  wait(label, [&] {
    const CollectiveCall call(*comm_, Operation::reduce_scatter, "ring", rows.first(0));
    ring_add_up(*comm_, part);
  });
  comm_->announce(Operation::reduce_scatter, rows, part[comm_->rank()]);
}

void ExpertParts::announce_own(Slice rows) {
  if (comm_ && split_.by_sequence) comm_->announce(Operation::scatter, rows, rows);
}

Traffic ExpertParts::traffic_of_counts(const ExpertSplit& split, Count own) {
  const int others = split.gathered_ranks() - 1;
  return {others, others * own, others, others * own};
}

Traffic ExpertParts::traffic_of_gather(const ExpertSplit& split, std::span<const Count> counts,
                                       Count columns) {
  return split.gathered_ranks() == 1
             ? Traffic{}
             : ring_gather_traffic(in_elements({counts.begin(), counts.end()}, columns),
                                   split.tensor_rank);
}

Traffic ExpertParts::traffic_of_sum(const ExpertSplit& split, std::span<const Count> counts,
                                    Count columns) {
  if (split.by_sequence) return reversed(traffic_of_gather(split, counts, columns));
  if (split.tensor_ranks == 1) return {};
  return find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
      .traffic({.ranks = split.tensor_ranks, .count = counts.front() * columns}, split.tensor_rank);
}

}  // namespace lockstep
