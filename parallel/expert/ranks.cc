#include "parallel/expert/ranks.h"

namespace lockstep {

ExpertRanks::ExpertRanks(Communicator& comm, Communicator& tensor, const ExpertSplit& split,
                         const ExpertConfig& experts, std::string_view method, Ledger& ledger)
    : comm_(&comm),
      group_{split, experts, comm.ranks_per_node()},
      method_(dispatch_method(method)),
      parts_(tensor, split),
      ledger_(ledger),
      waiting_(comm) {
  dispatcher_ = method_.make(comm, group_);
}

template <typename Exchange>
void ExpertRanks::wait(Exchange exchange) {
  if (!dispatcher_) return;
  const Trace::Span span(comm_->records().trace, 0, "wait for the experts' rows", "wait");
  waiting_->time(exchange);
}

void ExpertRanks::exchange_counts(Routing& routing) {
  choose_alike(group_, routing);
  wait([&] { dispatcher_->exchange_counts(counts_label, routing); });
  if (comm_ && !comm_->has_peers()) choose_alike(group_, routing);
  parts_.gather_counts(counts_label, routing);
}

void ExpertRanks::dispatch(const char* label, Slice of_experts, Slice of_tokens,
                           const Routing& routing, Count columns) {
  const RowExchange rows{label,   of_tokens, of_experts, dispatcher_scratch(of_tokens, columns),
                         routing, columns};
  wait([&] { dispatcher_->dispatch(rows); });
}

void ExpertRanks::combine(const char* label, Slice of_tokens, Slice of_experts,
                          const Routing& routing, Count columns) {
  const RowExchange rows{label,   of_tokens, of_experts, dispatcher_scratch(of_tokens, columns),
                         routing, columns};
  if (comm_) comm_->announce(Operation::all_to_all_v, of_experts, of_tokens);
  wait([&] { dispatcher_->combine(rows); });
}

std::array<Slice, 2> ExpertRanks::dispatcher_scratch(Slice like, Count columns) {
  const auto [one, other] = method_.scratch(group_);
  if (one == 0) return {};
  return {scratch(Use::dispatcher, one, columns, like.dtype),
          scratch(Use::dispatcher_too, other, columns, like.dtype)};
}

Slice ExpertRanks::scratch(Use use, Count rows, Count columns, DType dtype) {
  Tensor& memory = scratch_[static_cast<std::size_t>(use)];
  if (memory.count() < rows * columns || memory.dtype() != dtype)
    ensure(memory, {rows * columns}, dtype, ledger_, MemoryUse::communication);
  return memory.slice().first(rows * columns);
}

}  // namespace lockstep
