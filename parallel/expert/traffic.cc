#include "parallel/expert/traffic.h"

#include <fmt/format.h>

#include "parallel/expert/assumed_rows.h"
#include "parallel/expert/ranks.h"
#include "parallel/expert/uneven_ring.h"

namespace lockstep {
namespace {

// Of the legs of several exchanges, which are the same.
void add_legs(std::vector<DispatchLeg>& sums, std::vector<DispatchLeg> legs) {
  for (std::size_t i = 0; i < sums.size(); ++i) legs[i].traffic += sums[i].traffic;
  sums = std::move(legs);
}

std::vector<DispatchLeg> way_back(std::vector<DispatchLeg> legs) {
  for (auto& [name, t, sent_formula, received_formula] : legs) {
    t = reversed(t);
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

// Of the forward passes that take turns with a backward pass; 0 if none do.
Count most_tokens_in_pairs(const Plan& plan, int rank) {
  const std::vector<Count> rows = plan.rows(rank);
  const auto& actions = plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))];
  Count most = 0;
  for (std::size_t i = 0; i + 1 < actions.size(); ++i)
    if (plan.is_pair(actions[i], actions[i + 1]))
      most = std::max(most, rows[static_cast<std::size_t>(actions[i].micro_batch)]);
  return most;
}

}  // namespace

Terms expert_terms(const Plan& plan, int rank, int layers, const Environment& environment) {
  Terms terms{.part = PlanPart::experts};
  const LayerSplit split = plan.split(rank);
  if (!split.experts.is_divided() || layers == 0) return terms;
  const ExpertGroup group{split.experts, plan.model.experts, environment.expert_ranks_per_node};
  const DispatchMethod& method = dispatch_method(plan.options.token_dispatcher);
  std::vector<DispatchedRows> all = environment.dispatched;
  if (all.empty()) all = AssumedRows(plan, rank).of_step(group);

  const Count width = plan.model.width, element = element_bytes(plan.options.dtype),
              experts_per_row = method.experts_per_row(group),
              numbers = method.sends_tokens ? group.split.ranks : group.experts.number;
  std::vector<DispatchLeg> counts, leaving;  // of all layers and micro-batches, once
  Traffic counts_of_parts, gather, sum, gather_of_weights, sum_of_weights;
  for (const DispatchedRows& rows : all) {
    counts_of_parts += ExpertParts::traffic_of_counts(group.split, numbers);
    gather += ExpertParts::traffic_of_gather(group.split, rows.of_parts, width);
    sum += ExpertParts::traffic_of_sum(group.split, rows.of_parts, width);
    gather_of_weights +=
        ExpertParts::traffic_of_gather(group.split, rows.of_parts, experts_per_row);
    sum_of_weights += ExpertParts::traffic_of_sum(group.split, rows.of_parts, experts_per_row);
    add_legs(counts, method.counts(group));
    add_legs(leaving, method.rows(group, rows));
  }
  const std::vector<DispatchLeg> returning = way_back(leaving);
  send_legs(terms, ExpertRanks::counts_label, counts, sizeof(Count), " * 8 of each dispatch");
  const std::string assumed =
      environment.dispatched.empty() ? ", if " + plan.choices->assumption() : "";
  const std::string in_bytes = " * C * beta" + assumed;
  const Count row = width * element;
  terms.send(ExpertRanks::counts_label, counts_of_parts, sizeof(Count));
  const std::string added = "2(t-1)/t * rows of these experts" + in_bytes;
  const int times = model_options(plan.options).recompute == Recompute::full ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    send_legs(terms, ExpertRanks::dispatch_label, leaving, row, in_bytes);
    terms.send(ExpertRanks::split_forward_label, gather + sum, element, added);
    send_legs(terms, ExpertRanks::combine_label, returning, row, in_bytes);
  }
  send_legs(terms, ExpertRanks::combine_backward_label, leaving, row, in_bytes);
  terms.send(ExpertRanks::split_backward_label, gather + sum, element, added);
  send_legs(terms, ExpertRanks::dispatch_backward_label, returning, row, in_bytes);
  terms.bytes_formula = "rows of experts * C * beta + counts";
  terms.messages_formula = method.messages_formula;

  const auto [scratch, more_scratch] = method.scratch(group);
  const Count experts_rows = group.experts.most_rows(group.split),
              sent = method.most_sent(group, split.outer_rows(std::ranges::max(plan.rows(rank)))),
              received = method.most_received(group);
  terms.hold({.use = MemoryUse::communication,
              .bytes = (sent + received + experts_rows + scratch + more_scratch) * row,
              .formula = "experts' rows on their way"});
  // The forward pass of a pair has memory of its own.
  if (const Count tokens = most_tokens_in_pairs(plan, rank); tokens > 0)
    terms.hold({.use = MemoryUse::communication,
                .bytes = (method.most_sent(group, split.outer_rows(tokens)) + received +
                          experts_rows + scratch + more_scratch) *
                         row,
                .formula = "those of the other pass of a pair"});
  if (!group.split.weights_at_experts) return terms;

  const Count number = element_bytes(statistics_type(plan.options.dtype));
  const auto each_row = [&](Count bytes) {
    return fmt::format(" * {} * {}{}", experts_per_row, bytes, assumed);
  };
  constexpr Count choice = sizeof(std::int32_t);
  if (method.sends_tokens) {
    send_legs(terms, ExpertRanks::choices_label, leaving, experts_per_row * choice,
              each_row(choice));
    terms.send(ExpertRanks::choices_label, gather_of_weights, choice);
  }
  send_legs(terms, ExpertRanks::weights_label, leaving, experts_per_row * number, each_row(number));
  terms.send(ExpertRanks::weights_label, gather_of_weights, number);
  send_legs(terms, ExpertRanks::weights_backward_label, returning, experts_per_row * number,
            each_row(number));
  terms.send(ExpertRanks::weights_backward_label, sum_of_weights, number);
  terms.hold(
      {.use = MemoryUse::communication,
       .bytes = ((sent + 2 * received + scratch + more_scratch) * experts_per_row + experts_rows) *
                number,
       .formula = "gradients of the router's weights on their way"});
  return terms;
}

}  // namespace lockstep
