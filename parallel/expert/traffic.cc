#include "parallel/expert/traffic.h"

#include "models/routing.h"
#include "parallel/expert/ranks.h"

namespace lockstep {
namespace {

// Those of tokens that choose all experts in turn, if all ranks have as many.
DispatchedRows in_turn(const Plan& plan, Count tokens) {
  const Routing routing = Router(plan.model.experts).choose_in_turn(tokens, 1);
  DispatchedRows rows;
  const Count own = std::ssize(routing.counts) / plan.expert_ranks();
  rows.sent.resize(static_cast<std::size_t>(plan.expert_ranks()));
  for (Count e = 0; e < std::ssize(routing.counts); ++e)
    rows.sent[static_cast<std::size_t>(e / own)] += routing.counts[static_cast<std::size_t>(e)];
  return rows;
}

}  // namespace

Terms expert_terms(const Plan& plan, int rank, int layers,
                   const std::vector<DispatchedRows>& dispatched) {
  Terms terms{.part = PlanPart::experts};
  const int ranks = plan.expert_ranks(), own = plan.expert_rank(rank);
  if (ranks == 1 || layers == 0) return terms;
  std::vector<DispatchedRows> all = dispatched;
  if (all.empty())
    for (const Count rows : plan.rows(rank)) {
      DispatchedRows each = in_turn(plan, rows);
      each.received.assign(each.sent.size(), each.sent[static_cast<std::size_t>(own)]);
      all.insert(all.end(), static_cast<std::size_t>(layers), each);
    }

  const Count width = plan.model.width, element = element_bytes(plan.options.dtype);
  const ExpertConfig& experts = plan.model.experts;
  Traffic counts, leaving, returning;  // of all layers and micro-batches, once
  for (const DispatchedRows& rows : all)
    for (int q = 0; q < ranks; ++q) {
      if (q == own) continue;
      const Count each = plan.split(rank).experts.experts(experts.number);
      const Count leave = rows.sent[static_cast<std::size_t>(q)] * width,
                  arrive = rows.received[static_cast<std::size_t>(q)] * width;
      counts += {1, each, 1, each};
      leaving += {1, leave, 1, arrive};
      returning += {1, arrive, 1, leave};
    }
  terms.send(ExpertRanks::counts_label, counts, sizeof(Count), "(P-1) E/P * 8 of each dispatch");
  const std::string assumed = dispatched.empty() ? ", if experts are chosen in turn" : "";
  const std::string sent = "rows sent to other ranks' experts * C * beta" + assumed,
                    received = "rows received for this rank's experts * C * beta" + assumed;
  const int times = model_options(plan.options).recompute == Recompute::full ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    terms.send(ExpertRanks::dispatch_label, leaving, element, sent);
    terms.send(ExpertRanks::combine_label, returning, element, received);
  }
  terms.send(ExpertRanks::combine_backward_label, leaving, element, sent);
  terms.send(ExpertRanks::dispatch_backward_label, returning, element, received);
  terms.bytes_formula = "rows of experts * C * beta + counts";
  terms.messages_formula = "(P-1) for each exchange of experts' rows";

  const Count rows = experts.most_rows(plan.split(rank).experts);
  terms.hold(
      {.use = MemoryUse::communication,
       .bytes = (experts.most_rows(std::ranges::max(plan.rows(rank))) + 2 * rows) * width * element,
       .formula = "experts' rows on their way"});
  return terms;
}

}  // namespace lockstep
