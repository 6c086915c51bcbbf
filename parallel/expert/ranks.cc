#include "parallel/expert/ranks.h"

#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr int experts_track = 5;

}  // namespace

ExpertRanks::ExpertRanks(Communicator& comm, Communicator& tensor, const ExpertSplit& split,
                         const ExpertConfig& experts, std::string_view method, Overlap overlap,
                         Ledger& ledger)
    : comm_(&comm),
      group_{split, experts, comm.ranks_per_node()},
      method_(dispatch_method(method)),
      parts_(tensor, split),
      overlap_(overlap),
      ledger_(ledger),
      waiting_(comm) {
  dispatcher_ = method_.make(comm, group_);
  if (!overlap.shared_experts && !overlap.turns) return;
  stream_.emplace(comm, experts_track, "experts");
  overlapped_ = method_.make(stream_->communicator(), group_);
}

Meanwhile ExpertRanks::run_during_dispatch(const Meanwhile& meanwhile) {
  if (!overlap_.shared_experts) return meanwhile;
  meanwhile_ = meanwhile;
  return {};
}

std::vector<Count> rows_of_parts(const Routing& routing, const ExpertSplit& split) {
  std::vector<Count> parts;
  for (auto first = routing.received_of_parts.begin(); first != routing.received_of_parts.end();
       first += split.ranks)
    parts.push_back(std::reduce(first, first + split.ranks));
  return parts;
}

template <typename Exchange>
void ExpertRanks::wait(Exchange exchange) {
  if (!dispatcher_) return;
  const Trace::Span span(comm_->records().trace, 0, "wait for the experts' rows", "wait");
  waiting_->time(exchange);
}

void ExpertRanks::exchange_counts(Routing& routing) {
  choose_alike(group_, method_, routing);
  wait([&] { dispatcher_->exchange_counts(counts_label, routing); });
  if (is_alone()) choose_alike(group_, method_, routing);
  if (method_.sends_tokens) {
    parts_.gather_counts(counts_label, routing.received, routing.received_of_parts);
  } else {
    parts_.gather_counts(counts_label, routing.arriving, routing.arriving_of_parts);
    count_rows(routing, group_.split.ranks);
  }
  if (is_alone() && others_) others_(group_, routing);
}

// Of all rows that have arrived at this rank and those that split its experts, its own.
Range ExpertRanks::own_rows(const Routing& routing) const {
  const auto ranks = static_cast<std::ptrdiff_t>(group_.split.ranks);
  const auto first = routing.received_of_parts.begin() +
                     (group_.split.by_sequence ? group_.split.tensor_rank * ranks : 0);
  return {std::reduce(routing.received_of_parts.begin(), first), std::reduce(first, first + ranks)};
}

template <typename T>
void ExpertRanks::exchange_numbers(const char* label, std::vector<T>& arriving,
                                   std::vector<T> leaving, const Routing& routing) {
  const Count columns = experts_per_row();
  const auto [first, count] = own_rows(routing);
  const Count all = std::reduce(routing.received_of_parts.begin(), routing.received_of_parts.end());
  arriving.resize(static_cast<std::size_t>(all * columns));
  if (!comm_) return;
  const auto [one, other] = method_.scratch(group_);
  std::vector<T> room(static_cast<std::size_t>(one * columns)),
      more_room(static_cast<std::size_t>(other * columns));
  const Slice into = host_slice(std::span(arriving));
  const RowExchange rows{label,
                         host_slice(std::span(leaving)),
                         into.part(first * columns, count * columns),
                         {host_slice(std::span(room)), host_slice(std::span(more_room))},
                         routing,
                         columns};
  wait([&] { dispatcher_->dispatch(rows); });
  parts_.gather(label, into, rows_of_parts(routing, group_.split));
}

template <typename T>
std::vector<double> ExpertRanks::exchanged_weights(const std::vector<double>& leaving,
                                                   const Routing& routing) {
  std::vector<T> arriving;
  exchange_numbers(weights_label, arriving, std::vector<T>(leaving.begin(), leaving.end()),
                   routing);
  return {arriving.begin(), arriving.end()};
}

void ExpertRanks::exchange_weights(const SentRows& sent, DType type, Routing& routing) {
  const auto all = sent.tokens.size() * static_cast<std::size_t>(experts_per_row());
  std::vector<std::int32_t> experts(all, -1);
  std::vector<double> weights(all);
  for (std::size_t choice = 0; choice < sent.places.size(); ++choice)
    if (const std::int32_t place = sent.places[choice]; place >= 0) {
      experts[place] = routing.experts[choice];
      weights[place] = routing.weights[choice];
    }
  routing.arriving_weights = type == DType::f64 ? exchanged_weights<double>(weights, routing)
                                                : exchanged_weights<float>(weights, routing);
  if (!method_.sends_tokens) return list_arriving_choices(routing);
  const std::vector<std::int32_t> assumed = routing.arriving_experts;  // if this rank is alone
  exchange_numbers(choices_label, routing.arriving_experts, experts, routing);
  const auto own = static_cast<std::int32_t>(group_.own_experts());
  for (std::int32_t& expert : routing.arriving_experts)
    expert = expert >= 0 && expert / own == group_.split.rank ? expert % own : -1;
  if (!is_alone()) return;
  routing.arriving_experts = assumed;
  routing.arriving_experts.resize(routing.arriving_weights.size());
}

void ExpertRanks::list_arriving_choices(Routing& routing) const {
  const auto own = static_cast<std::int32_t>(group_.own_experts());
  routing.arriving_experts.clear();
  for (std::size_t i = 0; i < routing.arriving_of_parts.size(); ++i)
    routing.arriving_experts.insert(routing.arriving_experts.end(), routing.arriving_of_parts[i],
                                    static_cast<std::int32_t>(i) % own);
}

void ExpertRanks::dispatch(const char* label, Slice of_experts, Slice of_tokens,
                           const Routing& routing, Count columns) {
  travel(&TokenDispatcher::dispatch,
         {label, of_tokens, of_experts,
          dispatcher_scratch(Use::dispatcher, Use::dispatcher_too, of_tokens, columns), routing,
          columns});
}

void ExpertRanks::combine(const char* label, Slice of_tokens, Slice of_experts,
                          const Routing& routing, Count columns) {
  if (comm_) comm_->announce(Operation::all_to_all_v, of_experts, of_tokens);
  travel(&TokenDispatcher::combine,
         {label, of_tokens, of_experts,
          dispatcher_scratch(Use::dispatcher, Use::dispatcher_too, of_tokens, columns), routing,
          columns});
}

void ExpertRanks::combine_weights(Slice of_tokens, Slice of_experts, const Routing& routing) {
  const Count columns = experts_per_row();
  if (comm_) comm_->announce(Operation::all_to_all_v, of_experts, of_tokens);
  const RowExchange weights{
      weights_backward_label,
      of_tokens,
      of_experts,
      dispatcher_scratch(Use::weights_dispatcher, Use::weights_dispatcher_too, of_tokens, columns),
      routing,
      columns};
  wait([&] { dispatcher_->combine(weights); });
}

void ExpertRanks::travel(Way way, const RowExchange& rows) {
  const bool in_turns = overlap_.turns && overlap_.turns->are_two();
  if (!meanwhile_ && !in_turns) return wait([&] { (dispatcher_.get()->*way)(rows); });
  const Stream::Handle sent =
      stream_->enqueue([this, way, rows](Communicator&) { (overlapped_.get()->*way)(rows); });
  stream_->run_while(sent, [&] {
    run(std::exchange(meanwhile_, {}));
    if (in_turns) overlap_.turns->pass_on();
  });
  wait([&] { sent.wait(); });
}

std::array<Slice, 2> ExpertRanks::dispatcher_scratch(Use first, Use second, Slice like,
                                                     Count columns) {
  const auto [one, other] = method_.scratch(group_);
  if (one == 0) return {};
  return {scratch(first, one, columns, like.dtype), scratch(second, other, columns, like.dtype)};
}

Slice ExpertRanks::scratch(Use use, Count rows, Count columns, DType dtype) {
  const int turn = overlap_.turns ? overlap_.turns->current() : 0;
  Tensor& memory = scratch_[static_cast<std::size_t>(turn)][static_cast<std::size_t>(use)];
  if (memory.count() < rows * columns || memory.dtype() != dtype)
    ensure(memory, {rows * columns}, dtype, ledger_, MemoryUse::communication);
  return memory.slice().first(rows * columns);
}

}  // namespace lockstep
