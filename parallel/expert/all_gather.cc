// All-gather of tokens: every rank gets all ranks' tokens, whatever routers choose, and adds up what its
// experts have made of each. A reduce-scatter adds up those sums.
//
//   expert counts       P - 1 numbers
//   router choices      K numbers of 4 bytes for each row, and as many weights
//   to the experts      S - N(i + 1) rows, in P - 1 messages
//   back                the same way, reversed
//   time                P - 1 messages of N rows, if all ranks have N
//   scratch             none
//
// where rank i has N(i) tokens, and all have S. Fewer bytes than all_to_all if K > P.
#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "parallel/expert/dispatcher.h"
#include "parallel/expert/uneven_ring.h"

namespace lockstep {
namespace {

class AllGatherDispatcher final : public TokenDispatcher {
 public:
  explicit AllGatherDispatcher(Communicator& comm) : comm_(comm) {}

  void exchange_counts(const std::string& label, Routing& routing) override {
    comm_.set_label(label);
    all_gather(comm_, host_slice(std::span(routing.received)), "ring");
  }
  void dispatch(const RowExchange& x) override {
    const std::vector<Count> counts = in_elements(x.routing.received, x.columns);
    const UnevenChunks parts(x.of_experts, counts);
    comm_.set_label(x.label);
    const CollectiveCall call(comm_, Operation::all_gather, "ring", x.of_experts.first(0));
    comm_.copy(parts[comm_.rank()], x.of_tokens);
    ring_gather(comm_, parts);
  }
  void combine(const RowExchange& x) override {
    const std::vector<Count> counts = in_elements(x.routing.received, x.columns);
    const UnevenChunks parts(x.of_experts, counts);
    comm_.set_label(x.label);
    const CollectiveCall call(comm_, Operation::reduce_scatter, "ring", x.of_experts.first(0));
    ring_add_up(comm_, parts);
    comm_.copy(x.of_tokens, parts[comm_.rank()]);
  }

 private:
  Communicator& comm_;
};

SentRows all_tokens(const ExpertGroup& group, const Routing& routing) {
  const Count tokens = std::ssize(routing.experts) / group.experts.per_token;
  SentRows sent{.counts = std::vector<Count>(static_cast<std::size_t>(group.split.ranks), tokens),
                .first_own = 0,
                .tokens = std::vector<std::int32_t>(static_cast<std::size_t>(tokens)),
                .rows = {},
                .places = std::vector<std::int32_t>(routing.experts.size(), -1)};
  std::iota(sent.tokens.begin(), sent.tokens.end(), 0);
  sent.rows = sent.tokens;
  for (std::size_t choice = 0; choice < sent.places.size(); ++choice)
    if (routing.rows[choice] >= 0) sent.places[choice] = static_cast<std::int32_t>(choice);
  return sent;
}

std::vector<DispatchLeg> all_rows(const ExpertGroup& group, const DispatchedRows& rows) {
  return {{"", ring_gather_traffic(rows.received, group.split.rank),
           "rows of all ranks but the next one's", "rows of the other ranks"}};
}

std::optional<double> all_gather_seconds(const ExpertGroup& group, Count pair_bytes,
                                         const LinkModel& links) {
  const Estimate time = estimate(all_gather_ring(),
                                 {.ranks = group.split.ranks,
                                  .count = pair_bytes * group.split.ranks,
                                  .element_bytes = 1,
                                  .ranks_per_node = group.ranks_per_node},
                                 links);
  return time.is_exact ? std::optional(time.seconds) : std::nullopt;
}

}  // namespace

DispatchMethod all_gather_dispatch() {
  return {
      .name = "all_gather",
      .make = [](Communicator& comm, const ExpertGroup&) -> std::unique_ptr<TokenDispatcher> {
        return std::make_unique<AllGatherDispatcher>(comm);
      },
      .counts = one_count_each,
      .rows = all_rows,
      .scratch = [](const ExpertGroup&) { return std::array<Count, 2>{}; },
      .seconds = all_gather_seconds,
      .messages_formula = "(P-1) for each exchange of experts' rows",
      .sends_tokens = true,
      .sent = all_tokens,
      .experts_per_row = [](const ExpertGroup& group) { return Count{group.experts.per_token}; },
      .most_sent = [](const ExpertGroup&, Count tokens) { return tokens; },
      .most_received =
          [](const ExpertGroup& group) {
            return group.split.ranks * group.split.gathered_ranks() * group.split.most_tokens;
          }};
}

}  // namespace lockstep
