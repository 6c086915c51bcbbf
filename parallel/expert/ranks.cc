#include "parallel/expert/ranks.h"

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {
namespace {

std::vector<Count> elements_of(Slice slice, std::span<const Count> rows) {
  Count all = 0;
  for (const Count each : rows) all += each;
  std::vector<Count> counts(rows.begin(), rows.end());
  for (Count& count : counts) count = all > 0 ? count * (slice.count / all) : 0;
  return counts;
}

}  // namespace

void ExpertRanks::exchange_counts(Routing& routing) {
  const auto all = std::span(routing.counts);
  const Count own = split_.experts(std::ssize(all));
  const std::span mine = all.subspan(static_cast<std::size_t>(split_.first_expert(std::ssize(all))),
                                     static_cast<std::size_t>(own));
  // Without the others, each is taken to send as much as this rank.
  routing.arriving.clear();
  for (int source = 0; source < split_.ranks * split_.gathered_ranks(); ++source)
    routing.arriving.insert(routing.arriving.end(), mine.begin(), mine.end());
  if (!comm_) return;
  const Slice arriving = host_slice(std::span(routing.arriving));
  const Chunks by_tensor_rank(arriving, split_.gathered_ranks());
  const std::vector<Count> each(static_cast<std::size_t>(split_.ranks), own);
  comm_->set_label(counts_label);
  exchange(by_tensor_rank[split_.by_sequence ? split_.tensor_rank : 0], each, host_slice(all),
           each);
  if (split_.gathered_ranks() == 1) return;
  tensor_->set_label(counts_label);
  wait([&] { all_gather(*tensor_, arriving); });
}

void ExpertRanks::exchange(const char* label, Slice arriving, std::span<const Count> arriving_rows,
                           Slice leaving, std::span<const Count> leaving_rows) {
  if (!comm_) return;
  comm_->set_label(label);
  comm_->announce(Operation::all_to_all_v, leaving, arriving);
  exchange(arriving, elements_of(arriving, arriving_rows), leaving,
           elements_of(leaving, leaving_rows));
}

void ExpertRanks::exchange(Slice arriving, std::span<const Count> arriving_counts, Slice leaving,
                           std::span<const Count> leaving_counts) {
  wait([&] {
    all_to_all_v(*comm_, arriving, leaving, {.in = leaving_counts, .out = arriving_counts});
  });
}

void ExpertRanks::wait(const std::function<void()>& exchange) {
  const Trace::Span span(comm_->records().trace, 0, "wait for the experts' rows", "wait");
  waiting_->time(exchange);
}

// A ring: each part travels once around it.
void ExpertRanks::gather(const char* label, Slice rows, std::span<const Count> counts) {
  if (!tensor_ || counts.size() == 1) return;
  tensor_->set_label(label);
  const std::vector<Count> elements = elements_of(rows, counts);
  const UnevenChunks part(rows, elements);
  const int p = tensor_->size(), rank = tensor_->rank();
  tensor_->announce(Operation::all_gather, part[rank], rows);
  wait([&] {
    for (int step = 0; step < p - 1; ++step)
      tensor_->send_recv(part[(rank - step + p) % p], tensor_->right(),
                         part[(rank - 1 - step + p) % p], tensor_->left());
  });
}

// The same, but every rank adds its part of the sum.
void ExpertRanks::sum(const char* label, Slice rows, std::span<const Count> counts) {
  if (!tensor_ || split_.tensor_ranks == 1) return;
  tensor_->set_label(label);
  if (!split_.by_sequence) return wait([&] { all_reduce(*tensor_, rows); });
  const std::vector<Count> elements = elements_of(rows, counts);
  const UnevenChunks part(rows, elements);
  const int p = tensor_->size(), rank = tensor_->rank();
  wait([&] {
    for (int step = 0; step < p - 1; ++step)
      tensor_->send_recv_reduce(part[(rank - 1 - step + p) % p], tensor_->right(),
                                part[(rank - 2 - step + 2 * p) % p], tensor_->left(),
                                ReduceOp::sum);
  });
  tensor_->announce(Operation::reduce_scatter, rows, part[rank]);
}

Slice ExpertRanks::scratch(Use use, Count rows, Count columns, DType dtype) {
  Tensor& memory = scratch_[static_cast<std::size_t>(use)];
  if (memory.count() < rows * columns || memory.dtype() != dtype)
    ensure(memory, {rows * columns}, dtype, ledger_, MemoryUse::communication);
  return memory.slice().first(rows * columns);
}

}  // namespace lockstep
