// All-to-all of tokens: every rank sends each other rank the tokens that have chosen some of its experts,
// each once. A rank adds up what its experts have made of a token, and one row travels back.
//
//   expert counts       P - 1 numbers
//   router choices      min(K, E / P) numbers of 4 bytes for each row, and as many weights
//   to the experts      sum over q != r of d(r, q) rows, in P - 1 messages
//   back                sum over q != r of d(q, r) rows
//   time                as all_to_all
//   scratch             none
//
// where d(r, q) tokens of rank r have chosen some of rank q's experts: of tokens that choose all equally
// often, P (1 - C(E - E / P, K) / C(E, K)) rows each, counting a rank's own, instead of K. DeepSeek-AI,
// "DeepEP", 2025.
#include <algorithm>

#include "parallel/expert/dispatcher.h"

namespace lockstep {
namespace {

class DeduplicatedDispatcher final : public TokenDispatcher {
 public:
  DeduplicatedDispatcher(Communicator& comm, const ExpertGroup& group)
      : comm_(comm), rows_(all_to_all_dispatch().make(comm, group)) {}

  void exchange_counts(const std::string& label, Routing& routing) override {
    const std::vector<Count> one_each(routing.sent.size(), 1);
    comm_.set_label(label);
    all_to_all_v(comm_, host_slice(std::span(routing.received)),
                 host_slice(std::span(routing.sent)), {.in = one_each, .out = one_each});
  }
  void dispatch(const RowExchange& x) override { rows_->dispatch(x); }
  void combine(const RowExchange& x) override { rows_->combine(x); }

 private:
  Communicator& comm_;
  std::unique_ptr<TokenDispatcher> rows_;
};

// A rank's rows lie in the order of the tokens, and a row's experts as the token has chosen them.
SentRows tokens_for_ranks(const ExpertGroup& group, const Routing& routing) {
  const Count ranks = group.split.ranks, k = group.experts.per_token, own = group.own_experts();
  const Count tokens = std::ssize(routing.experts) / k, of_token = std::min(k, ranks),
              of_row = std::min(k, own);
  SentRows sent{.counts = std::vector<Count>(static_cast<std::size_t>(ranks)),
                .first_own = 0,
                .tokens = {},
                .rows = std::vector<std::int32_t>(static_cast<std::size_t>(tokens * of_token), -1),
                .places = std::vector<std::int32_t>(routing.experts.size(), -1)};
  std::vector<Count> found(static_cast<std::size_t>(tokens));  // rows of each token
  for (Count rank = 0; rank < ranks; ++rank) {
    if (rank == group.split.rank) sent.first_own = std::ssize(sent.tokens);
    for (Count t = 0; t < tokens; ++t) {
      const auto row = static_cast<std::int32_t>(sent.tokens.size());
      Count experts = 0;
      for (Count choice = t * k; choice < (t + 1) * k; ++choice)
        if (routing.rows[choice] >= 0 && routing.experts[choice] / own == rank)
          sent.places[choice] = static_cast<std::int32_t>(row * of_row + experts++);
      if (experts == 0) continue;
      sent.tokens.push_back(static_cast<std::int32_t>(t));
      sent.rows[t * of_token + found[t]++] = row;
      ++sent.counts[rank];
    }
  }
  return sent;
}

}  // namespace

DispatchMethod deduplicated_dispatch() {
  DispatchMethod method = all_to_all_dispatch();
  method.name = "deduplicated";
  method.make = [](Communicator& comm,
                   const ExpertGroup& group) -> std::unique_ptr<TokenDispatcher> {
    return std::make_unique<DeduplicatedDispatcher>(comm, group);
  };
  method.sends_tokens = true;
  method.sent = tokens_for_ranks;
  method.experts_per_row = [](const ExpertGroup& group) {
    return std::min<Count>(group.experts.per_token, group.own_experts());
  };
  method.most_sent = [](const ExpertGroup& group, Count tokens) {
    return std::min(tokens * std::min(group.experts.per_token, group.split.ranks),
                    group.experts.most_rows(tokens));
  };
  method.most_received = [](const ExpertGroup& group) {
    return std::min(group.split.ranks * group.split.gathered_ranks() * group.split.most_tokens,
                    group.experts.most_rows(group.split));
  };
  method.counts = one_count_each;
  return method;
}

}  // namespace lockstep
