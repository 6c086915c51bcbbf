#include "bench/techniques/moe_exchange.h"

#include <numeric>

namespace lockstep {
namespace {

Count rows_in(const std::vector<Count>& counts) {
  return std::reduce(counts.begin(), counts.end());
}

// The bytes that every pair of ranks has, if all have equally many.
std::optional<Count> bytes_of_each_pair(const DispatchMethod& method, const MoeWorld& world) {
  if (method.name == "all_gather") return world.tokens * world.row_bytes();
  const auto ranks = world.choices.size();
  const auto own = static_cast<std::size_t>(world.experts.number) / ranks;
  if (method.name == "padded")
    return static_cast<Count>(own) * world.experts.capacity_of(world.tokens) * world.row_bytes();
  std::optional<Count> first;
  for (const MoeChoices& from : world.choices)
    for (std::size_t to = 0; to < ranks; ++to) {
      Count rows = method.sends_tokens ? from.ranks[to] : 0;
      if (!method.sends_tokens)
        for (std::size_t e = to * own; e < (to + 1) * own; ++e) rows += from.experts[e];
      if (first.value_or(rows) != rows) return {};
      first = rows;
    }
  return *first * world.row_bytes();
}

}  // namespace

MoeExchange::MoeExchange(const std::string& method, RankContext& context, const MoeWorld& world)
    : ledger_(context.ledger),
      world_(world),
      method_(dispatch_method(method)),
      group_{{.ranks = context.world.size(),
              .rank = context.world.rank(),
              .most_tokens = world.tokens},
             world.experts,
             context.world.ranks_per_node()},
      // No rank splits experts, so that the second communicator is not used.
      ranks_(context.world, context.world, group_.split, world.experts, method, {},
             context.ledger) {
  const MoeChoices& own = world.choices[static_cast<std::size_t>(context.world.rank())];
  routing_.counts = own.experts;
  routing_.experts = own.chosen;
  routing_.weights.resize(own.chosen.size());
  routing_.rows.resize(own.chosen.size());  // none is -1: dropped
}

void MoeExchange::counts() {
  ranks_.exchange_counts(routing_);
  if (method_.sends_tokens)
    ranks_.exchange_weights(ranks_.sent(routing_), statistics_type(world_.dtype), routing_);
}

void MoeExchange::dispatch() {
  const auto [of_tokens, of_experts] = rows();
  ranks_.dispatch(ExpertRanks::dispatch_label, of_experts, of_tokens, routing_, world_.columns);
}

void MoeExchange::combine() {
  const auto [of_tokens, of_experts] = rows();
  ranks_.combine(ExpertRanks::combine_label, of_tokens, of_experts, routing_, world_.columns);
}

std::vector<DispatchLeg> MoeExchange::expected() const {
  return method_.rows(group_, dispatched_rows(routing_));
}

std::pair<Slice, Slice> MoeExchange::rows() {
  const auto memory = [&](Tensor& tensor, Count rows) {
    ensure(tensor, {rows, world_.columns}, world_.dtype, ledger_, MemoryUse::communication);
    return tensor.slice();
  };
  const Count sent = method_.name == "all_gather" ? world_.tokens : rows_in(routing_.sent);
  return {memory(of_tokens_, sent), memory(of_experts_, rows_in(routing_.received))};
}

std::optional<double> expected_dispatch_seconds(const std::string& name, const MoeWorld& world,
                                                int ranks_per_node, const LinkModel& links) {
  const DispatchMethod& method = dispatch_method(name);
  const std::optional<Count> bytes = bytes_of_each_pair(method, world);
  if (!bytes || ranks_per_node == 0) return {};
  const ExpertGroup group{
      {.ranks = static_cast<int>(world.choices.size())}, world.experts, ranks_per_node};
  return method.seconds(group, *bytes, links);
}

}  // namespace lockstep
