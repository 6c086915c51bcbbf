#include "parallel/expert/traffic.h"

#include <numeric>

#include "models/routing.h"
#include "parallel/expert/ranks.h"

namespace lockstep {
namespace {

// Those of tokens that choose all experts in turn, if all ranks have as many.
DispatchedRows rows_in_turn(const ExpertGroup& group, Count tokens) {
  Routing routing = Router(group.experts).choose_in_turn(tokens, 1);
  choose_alike(group, routing);
  DispatchedRows rows = dispatched_rows(routing, group.split.ranks);
  rows.of_parts.assign(static_cast<std::size_t>(group.split.gathered_ranks()),
                       std::reduce(rows.received.begin(), rows.received.end()));
  return rows;
}

// Of the legs of several exchanges, which are the same.
void add_legs(std::vector<DispatchLeg>& sums, std::vector<DispatchLeg> legs) {
  for (std::size_t i = 0; i < sums.size(); ++i) legs[i].traffic += sums[i].traffic;
  sums = std::move(legs);
}

std::vector<DispatchLeg> way_back(std::vector<DispatchLeg> legs) {
  for (auto& [name, t, sent_formula, received_formula] : legs) {
    t = {t.received_messages, t.received_elements, t.sent_messages, t.sent_elements};
    std::swap(sent_formula, received_formula);
  }
  return legs;
}

void send_legs(Terms& terms, const std::string& label, const std::vector<DispatchLeg>& legs,
               Count element_bytes, const std::string& formula) {
  for (const DispatchLeg& leg : legs)
    terms.send(label + std::string(leg.name), leg.traffic, element_bytes,
               std::string(leg.sent_formula) + formula);
}

}  // namespace

Terms expert_terms(const Plan& plan, int rank, int layers, const Environment& environment) {
  Terms terms{.part = PlanPart::experts};
  const LayerSplit split = plan.split(rank);
  if (!split.experts.is_divided() || layers == 0) return terms;
  const ExpertGroup group{split.experts, plan.model.experts, environment.expert_ranks_per_node};
  const DispatchMethod& method = dispatch_method(plan.options.token_dispatcher);
  std::vector<DispatchedRows> all = environment.dispatched;
  if (all.empty())
    for (const Count rows : plan.rows(rank))
      all.insert(all.end(), static_cast<std::size_t>(layers),
                 rows_in_turn(group, split.outer_rows(rows)));

  const Count width = plan.model.width, element = element_bytes(plan.options.dtype);
  std::vector<DispatchLeg> counts, leaving;  // of all layers and micro-batches, once
  Traffic counts_of_parts, between_parts;
  for (const DispatchedRows& rows : all) {
    counts_of_parts += ExpertParts::traffic_of_counts(group.split, group.experts.number);
    between_parts += ExpertParts::traffic_of_rows(group.split, rows.of_parts, width);
    add_legs(counts, method.counts(group));
    add_legs(leaving, method.rows(group, rows));
  }
  const std::vector<DispatchLeg> returning = way_back(leaving);
  send_legs(terms, ExpertRanks::counts_label, counts, sizeof(Count), " * 8 of each dispatch");
  const std::string in_bytes =
      environment.dispatched.empty() ? " * C * beta, if experts are chosen in turn" : " * C * beta";
  const Count row = width * element;
  terms.send(ExpertRanks::counts_label, counts_of_parts, sizeof(Count));
  const std::string added = "2(t-1)/t * rows of these experts" + in_bytes;
  const int times = model_options(plan.options).recompute == Recompute::full ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    send_legs(terms, ExpertRanks::dispatch_label, leaving, row, in_bytes);
    terms.send(ExpertRanks::split_forward_label, between_parts, element, added);
    send_legs(terms, ExpertRanks::combine_label, returning, row, in_bytes);
  }
  send_legs(terms, ExpertRanks::combine_backward_label, leaving, row, in_bytes);
  terms.send(ExpertRanks::split_backward_label, between_parts, element, added);
  send_legs(terms, ExpertRanks::dispatch_backward_label, returning, row, in_bytes);
  terms.bytes_formula = "rows of experts * C * beta + counts";
  terms.messages_formula = method.messages_formula;

  const auto [scratch, more_scratch] = method.scratch(group);
  const Count rows = group.experts.most_rows(group.split);
  terms.hold(
      {.use = MemoryUse::communication,
       .bytes = (group.experts.most_rows(split.outer_rows(std::ranges::max(plan.rows(rank)))) +
                 2 * rows + scratch + more_scratch) *
                row,
       .formula = "experts' rows on their way"});
  return terms;
}

}  // namespace lockstep
