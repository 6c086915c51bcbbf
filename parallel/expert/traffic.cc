#include "parallel/expert/traffic.h"

#include <numeric>

#include "collectives/all_reduce/all_reduce.h"
#include "models/routing.h"
#include "parallel/expert/ranks.h"

namespace lockstep {
namespace {

// Those of tokens that choose all experts in turn, if all ranks have as many.
DispatchedRows in_turn(const Plan& plan, const ExpertSplit& split, Count tokens) {
  const Routing routing = Router(plan.model.experts).choose_in_turn(tokens, 1);
  DispatchedRows rows;
  const Count own = split.experts(std::ssize(routing.counts));
  rows.sent.resize(static_cast<std::size_t>(split.ranks));
  for (Count e = 0; e < std::ssize(routing.counts); ++e)
    rows.sent[static_cast<std::size_t>(e / own)] += routing.counts[static_cast<std::size_t>(e)];
  const Count each = rows.sent[static_cast<std::size_t>(split.rank)];
  rows.received.assign(rows.sent.size(), each);
  rows.of_parts.assign(static_cast<std::size_t>(split.gathered_ranks()), each * split.ranks);
  return rows;
}

// Of a layer and micro-batch, in one direction, between the ranks that split experts.
Traffic traffic_of_parts(const ExpertSplit& split, std::span<const Count> rows, Count width) {
  const int t = split.tensor_ranks, here = split.tensor_rank;
  if (t == 1) return {};
  if (!split.by_sequence)
    return find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
        .traffic({.ranks = t, .count = rows.front() * width}, here);
  const Count all = std::accumulate(rows.begin(), rows.end(), Count{0});
  // Gathering, a rank does not send what its right neighbour provides. Adding up, it keeps its own, and
  // its left neighbour's is complete elsewhere.
  const auto without = [&](int rank) {
    return (all - rows[static_cast<std::size_t>((rank + t) % t)]) * width;
  };
  return Traffic{t - 1, without(here + 1), t - 1, without(here)} +
         Traffic{t - 1, without(here), t - 1, without(here - 1)};
}

Traffic traffic_of_counts(const ExpertSplit& split, Count experts) {
  const Count each = split.experts(experts), others = split.ranks - 1;
  const int parts = split.gathered_ranks() - 1;
  const Count gathered = parts * split.ranks * each;
  return Traffic{others, others * each, others, others * each} +
         Traffic{parts, gathered, parts, gathered};
}

}  // namespace

Terms expert_terms(const Plan& plan, int rank, int layers,
                   const std::vector<DispatchedRows>& dispatched) {
  Terms terms{.part = PlanPart::experts};
  const LayerSplit layer_split = plan.split(rank);
  const ExpertSplit& split = layer_split.experts;
  if (!split.is_divided() || layers == 0) return terms;
  std::vector<DispatchedRows> all = dispatched;
  if (all.empty())
    for (const Count rows : plan.rows(rank))
      all.insert(all.end(), static_cast<std::size_t>(layers),
                 in_turn(plan, split, layer_split.outer_rows(rows)));

  const Count width = plan.model.width, element = element_bytes(plan.options.dtype);
  const ExpertConfig& experts = plan.model.experts;
  Traffic counts, leaving, returning, between_parts;  // of all layers and micro-batches, once
  for (const DispatchedRows& rows : all) {
    counts += traffic_of_counts(split, experts.number);
    between_parts += traffic_of_parts(split, rows.of_parts, width);
    for (int q = 0; q < split.ranks; ++q) {
      if (q == split.rank) continue;
      const Count leave = rows.sent[static_cast<std::size_t>(q)] * width,
                  arrive = rows.received[static_cast<std::size_t>(q)] * width;
      leaving += {1, leave, 1, arrive};
      returning += {1, arrive, 1, leave};
    }
  }
  terms.send(ExpertRanks::counts_label, counts, sizeof(Count), "(P-1) E/P * 8 of each dispatch");
  const std::string assumed = dispatched.empty() ? ", if experts are chosen in turn" : "";
  const std::string sent = "rows sent to other ranks' experts * C * beta" + assumed,
                    received = "rows received for this rank's experts * C * beta" + assumed,
                    added = "2(t-1)/t * rows of these experts * C * beta" + assumed;
  const int times = model_options(plan.options).recompute == Recompute::full ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    terms.send(ExpertRanks::dispatch_label, leaving, element, sent);
    terms.send(ExpertRanks::split_forward_label, between_parts, element, added);
    terms.send(ExpertRanks::combine_label, returning, element, received);
  }
  terms.send(ExpertRanks::combine_backward_label, leaving, element, sent);
  terms.send(ExpertRanks::split_backward_label, between_parts, element, added);
  terms.send(ExpertRanks::dispatch_backward_label, returning, element, received);
  terms.bytes_formula = "rows of experts * C * beta + counts";
  terms.messages_formula = "(P-1) for each exchange of experts' rows";

  const Count leave = experts.most_rows(layer_split.outer_rows(std::ranges::max(plan.rows(rank))));
  terms.hold({.use = MemoryUse::communication,
              .bytes = (leave + 2 * experts.most_rows(split)) * width * element,
              .formula = "experts' rows on their way"});
  return terms;
}

}  // namespace lockstep
