// All-to-all of rows: every rank sends each other rank the rows for its experts, in one message.
//
//   expert counts       (P - 1) E / P numbers
//   to the experts      sum over q != r of n(r, q) rows, in P - 1 messages
//   back                sum over q != r of n(q, r) rows
//   time                P - 1 messages, of n(r, q) rows each, if these are equal
//   scratch             none
//
// where n(r, q) rows go from rank r to the experts of rank q. A pair without rows still exchanges an
// empty message. Lepikhin et al., "GShard", 2020.
#include "parallel/expert/dispatcher.h"

namespace lockstep {
namespace {

class AllToAllDispatcher final : public TokenDispatcher {
 public:
  AllToAllDispatcher(Communicator& comm, const ExpertGroup& group) : comm_(comm), group_(group) {}

  void exchange_counts(const std::string& label, Routing& routing) override {
    const std::vector<Count> each(static_cast<std::size_t>(group_.split.ranks),
                                  group_.own_experts());
    exchange(label, host_slice(std::span(routing.arriving)), each,
             host_slice(std::span(routing.counts)), each);
  }
  void dispatch(const RowExchange& x) override {
    const auto [leaving, arriving] = elements(x);
    exchange(x.label, x.of_experts, arriving, x.of_tokens, leaving);
  }
  void combine(const RowExchange& x) override {
    const auto [arriving, leaving] = elements(x);
    exchange(x.label, x.of_tokens, arriving, x.of_experts, leaving);
  }

 private:
  // Of tokens and of experts, by rank.
  std::pair<std::vector<Count>, std::vector<Count>> elements(const RowExchange& x) const {
    DispatchedRows rows = dispatched_rows(x.routing);
    return {in_elements(std::move(rows.sent), x.columns),
            in_elements(std::move(rows.received), x.columns)};
  }
  void exchange(const std::string& label, Slice into, std::span<const Count> arriving, Slice from,
                std::span<const Count> leaving) {
    comm_.set_label(label);
    all_to_all_v(comm_, into, from, {.in = leaving, .out = arriving});
  }

  Communicator& comm_;
  ExpertGroup group_;
};

std::vector<DispatchLeg> counts_to_all(const ExpertGroup& group) {
  const Count each = group.own_experts();
  return {{"", (group.split.ranks - 1) * Traffic{1, each, 1, each}, "(P-1) E/P", "(P-1) E/P"}};
}

std::vector<DispatchLeg> rows_to_all(const ExpertGroup& group, const DispatchedRows& rows) {
  Traffic traffic;
  for (int q = 0; q < group.split.ranks; ++q)
    if (q != group.split.rank) traffic += {1, rows.sent[q], 1, rows.received[q]};
  return {
      {"", traffic, "rows sent to other ranks' experts", "rows received for this rank's experts"}};
}

}  // namespace

DispatchMethod all_to_all_dispatch() {
  return {
      .name = "all_to_all",
      .make = [](Communicator& comm, const ExpertGroup& group) -> std::unique_ptr<TokenDispatcher> {
        return std::make_unique<AllToAllDispatcher>(comm, group);
      },
      .counts = counts_to_all,
      .rows = rows_to_all,
      .scratch = [](const ExpertGroup&) { return std::array<Count, 2>{}; },
      .seconds = all_to_all_seconds,
      .messages_formula = "(P-1) for each exchange of experts' rows"};
}

}  // namespace lockstep
