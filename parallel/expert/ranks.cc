#include "parallel/expert/ranks.h"

#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {

void ExpertRanks::exchange_counts(Routing& routing) {
  const auto ranks = static_cast<std::size_t>(split_.ranks);
  const auto all = std::span(routing.counts);
  const Count own = split_.experts(std::ssize(all));
  // Without the others, each is taken to send as much as this rank.
  routing.arriving.clear();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto mine = all.subspan(static_cast<std::size_t>(split_.first_expert(std::ssize(all))),
                                  static_cast<std::size_t>(own));
    routing.arriving.insert(routing.arriving.end(), mine.begin(), mine.end());
  }
  if (!comm_) return;
  comm_->set_label(counts_label);
  const std::vector<Count> each(ranks, own);
  exchange(host_slice(std::span(routing.arriving)), each, host_slice(all), each);
}

void ExpertRanks::exchange(const char* label, Slice arriving, std::span<const Count> arriving_rows,
                           Slice leaving, std::span<const Count> leaving_rows) {
  if (!comm_) return;
  comm_->set_label(label);
  const auto elements = [](Slice slice, std::span<const Count> rows) {
    Count all = 0;
    for (const Count each : rows) all += each;
    std::vector<Count> counts(rows.begin(), rows.end());
    for (Count& count : counts) count = all > 0 ? count * (slice.count / all) : 0;
    return counts;
  };
  comm_->announce(Operation::all_to_all_v, leaving, arriving);
  exchange(arriving, elements(arriving, arriving_rows), leaving, elements(leaving, leaving_rows));
}

void ExpertRanks::exchange(Slice arriving, std::span<const Count> arriving_counts, Slice leaving,
                           std::span<const Count> leaving_counts) {
  const Trace::Span span(comm_->records().trace, 0, "wait for the experts' rows", "wait");
  waiting_->time([&] {
    all_to_all_v(*comm_, arriving, leaving, {.in = leaving_counts, .out = arriving_counts});
  });
}

Slice ExpertRanks::scratch(Use use, Count rows, Count columns, DType dtype) {
  Tensor& memory = scratch_[static_cast<std::size_t>(use)];
  if (memory.count() < rows * columns || memory.dtype() != dtype)
    ensure(memory, {rows * columns}, dtype, ledger_, MemoryUse::communication);
  return memory.slice().first(rows * columns);
}

}  // namespace lockstep
