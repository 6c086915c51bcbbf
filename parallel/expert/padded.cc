// Padded all-to-all of rows: every rank sends each other rank as many rows as its experts take at most,
// so that all messages are equal, whatever the routers choose. Needs a capacity.
//
//   expert counts       (P - 1) E / P numbers: how many rows are none
//   to the experts      (P - 1) E / P capacity rows, in P - 1 messages
//   back                the same
//   time                as all_to_all, whatever the routers choose
//   scratch             2 E capacity rows
//
// of a micro-batch of as many tokens as any has. Experts get no row that is none. Lepikhin et al.,
// "GShard", 2020.
#include <algorithm>

#include "parallel/expert/dispatcher.h"

namespace lockstep {
namespace {

Count padded_to(const ExpertGroup& group) {
  return group.experts.capacity_of(group.split.most_tokens);
}

class PaddedDispatcher final : public TokenDispatcher {
 public:
  PaddedDispatcher(Communicator& comm, const ExpertGroup& group)
      : comm_(comm), counts_(all_to_all_dispatch().make(comm, group)), group_(group) {}

  void exchange_counts(const std::string& label, Routing& routing) override {
    counts_->exchange_counts(label, routing);
  }
  void dispatch(const RowExchange& x) override {
    exchange(x, x.of_tokens, x.routing.counts, x.of_experts, x.routing.arriving);
  }
  void combine(const RowExchange& x) override {
    exchange(x, x.of_experts, x.routing.arriving, x.of_tokens, x.routing.counts);
  }

 private:
  // Both have rows by rank and expert. The rest of each expert's part of a message is not read.
  void exchange(const RowExchange& x, Slice from, const std::vector<Count>& leaving, Slice into,
                const std::vector<Count>& arriving) {
    comm_.set_label(x.label);
    const CollectiveCall call(comm_, Operation::all_to_all_v, "padded", from.first(0));
    const auto& [padded, received] = x.scratch;
    const Count part = padded_to(group_) * x.columns;
    const std::vector<Count> parts(leaving.size(), part),
        messages(static_cast<std::size_t>(group_.split.ranks), group_.own_experts() * part);
    copy_rows({padded, parts}, {from, in_elements(leaving, x.columns)});
    all_to_all_v_pairwise().run(comm_, received, padded, {.in = messages, .out = messages});
    copy_rows({into, in_elements(arriving, x.columns)}, {received, parts});
  }
  // Copies as much of each part as both have: the rows.
  void copy_rows(const UnevenChunks& into, const UnevenChunks& from) {
    for (int i = 0; i < static_cast<int>(group_.experts.number); ++i)
      if (const Count count = std::min(into[i].count, from[i].count); count > 0)
        comm_.copy(into[i].first(count), from[i].first(count));
  }

  Communicator& comm_;
  std::unique_ptr<TokenDispatcher> counts_;
  ExpertGroup group_;
};

std::vector<DispatchLeg> padded_rows(const ExpertGroup& group, const DispatchedRows&) {
  const Count each = group.own_experts() * padded_to(group);
  constexpr std::string_view formula = "(P-1) E/P capacity";
  return {{"", (group.split.ranks - 1) * Traffic{1, each, 1, each}, formula, formula}};
}

}  // namespace

DispatchMethod padded_dispatch() {
  DispatchMethod method = all_to_all_dispatch();
  method.name = "padded";
  method.make = [](Communicator& comm,
                   const ExpertGroup& group) -> std::unique_ptr<TokenDispatcher> {
    return std::make_unique<PaddedDispatcher>(comm, group);
  };
  method.rows = padded_rows;
  method.scratch = [](const ExpertGroup& group) {
    const Count all = group.experts.number * padded_to(group);
    return std::array<Count, 2>{all, all};
  };
  return method;
}

}  // namespace lockstep
