#include "parallel/expert/assumed_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "parallel/expert/ranks.h"

namespace lockstep {
namespace {

// Ranks along tp have the same tokens, unless they divide sequences.
ChoiceSource source_of(const Plan& plan, int rank) {
  const bool by_sequence = plan.split(rank).by_sequence;
  const int parts = by_sequence ? plan.length(Axis::tp) : 1;
  return {.number = plan.copy(rank) * parts + (by_sequence ? plan.place(rank, Axis::tp) : 0),
          .all = plan.copies() * parts};
}

template <typename Numbers>
Count sum_of(const Numbers& numbers) {
  return std::reduce(numbers.begin(), numbers.end(), Count{0});
}

}  // namespace

AssumedRows::AssumedRows(const Plan& plan, int rank)
    : plan_(plan),
      rank_(rank),
      split_(plan.split(rank)),
      method_(dispatch_method(plan.options.token_dispatcher)) {
  const Mesh::Group parts = split_.experts.gathered_ranks() > 1
                                ? plan.mesh.group_of(rank, {Axis::tp})
                                : Mesh::Group{rank};
  for (const int part : parts) {
    if (part == rank) part_ = sources_.size();
    sources_.emplace_back();
    for (const int from : plan.expert_group(part)) sources_.back().push_back(source_of(plan, from));
  }
}

std::vector<std::int32_t> AssumedRows::experts(int layer, Count tokens) const {
  return plan_.choices->experts(layer, source_of(plan_, rank_), tokens);
}

std::vector<Count> AssumedRows::rows_from(ChoiceSource source, int layer, Count tokens) const {
  std::vector<Count> rows = plan_.choices->counts(layer, source, tokens);
  const Count capacity = plan_.model.experts.capacity_of(tokens);
  for (Count& count : rows) count = std::min(count, capacity);
  return rows;
}

void AssumedRows::set_others(const ExpertGroup& group, Routing& routing) const {
  const Count tokens = std::ssize(routing.experts) / group.experts.per_token;
  set_others(group, routing.layer, tokens, routing);
}

Routing AssumedRows::routing_of(ChoiceSource source, int layer, Count tokens) const {
  Router router(plan_.model.experts, layer);
  router.assume([&](int of, Count n) { return plan_.choices->experts(of, source, n); });
  return router.choose_as_assumed(tokens, 1);
}

void AssumedRows::set_tokens_of_others(const ExpertGroup& group, int layer, Count tokens,
                                       Routing& routing) const {
  const Count of_row = method_.experts_per_row(group), own = group.own_experts();
  routing.received_of_parts.clear();
  routing.arriving_experts.clear();
  for (std::size_t part = 0; part < sources_.size(); ++part) {
    std::vector<Count> received;
    for (std::size_t from = 0; from < sources_[part].size(); ++from) {
      const Routing others = routing_of(sources_[part][from], layer, tokens);
      const SentRows sent = method_.sent(group, others);
      received.push_back(sent.counts[group.split.rank]);
      std::vector<std::int32_t> experts(sent.tokens.size() * static_cast<std::size_t>(of_row), -1);
      for (std::size_t choice = 0; choice < sent.places.size(); ++choice)
        if (const Count e = others.experts[choice];
            sent.places[choice] >= 0 && e / own == group.split.rank)
          experts[sent.places[choice]] = static_cast<std::int32_t>(e % own);
      const auto first = experts.begin() + sent.first_own * of_row;
      routing.arriving_experts.insert(routing.arriving_experts.end(), first,
                                      first + received.back() * of_row);
    }
    routing.received_of_parts.insert(routing.received_of_parts.end(), received.begin(),
                                     received.end());
    if (part == part_) routing.received = received;
  }
}

void AssumedRows::set_others(const ExpertGroup& group, int layer, Count tokens,
                             Routing& routing) const {
  if (method_.sends_tokens) return set_tokens_of_others(group, layer, tokens, routing);
  const auto own = static_cast<std::size_t>(group.own_experts()),
             here = static_cast<std::size_t>(group.split.rank),
             places = static_cast<std::size_t>(std::max(group.ranks_per_node, 1));
  routing.arriving.clear();
  routing.arriving_of_parts.clear();
  routing.passing.clear();
  for (std::size_t part = 0; part < sources_.size(); ++part)
    for (std::size_t from = 0; from < sources_[part].size(); ++from) {
      const std::vector<Count> rows = rows_from(sources_[part][from], layer, tokens);
      const auto of_rank = [&](std::size_t to) { return std::span(rows).subspan(to * own, own); };
      const auto arriving = of_rank(here);
      routing.arriving_of_parts.insert(routing.arriving_of_parts.end(), arriving.begin(),
                                       arriving.end());
      if (part != part_) continue;
      routing.arriving.insert(routing.arriving.end(), arriving.begin(), arriving.end());
      // Rows of this node pass through the rank with the same place as their destination.
      if (from / places == here / places)
        for (std::size_t to = here % places; to < sources_[part].size(); to += places)
          routing.passing.push_back(sum_of(of_rank(to)));
    }
  count_rows(routing, group.split.ranks);
}

std::vector<DispatchedRows> AssumedRows::of_step(const ExpertGroup& group) const {
  std::vector<DispatchedRows> all;
  for (const int layer : layers_with_experts()) {
    std::map<Count, DispatchedRows> by_tokens;  // micro-batches have one or two sizes
    for (const Count rows : plan_.rows(rank_)) {
      const Count tokens = own_tokens(rows);
      const auto [place, is_new] = by_tokens.try_emplace(tokens);
      if (is_new) {
        Routing routing =
            routing_of(sources_[part_][static_cast<std::size_t>(group.split.rank)], layer, tokens);
        if (method_.sends_tokens) routing.sent = method_.sent(group, routing).counts;
        set_others(group, layer, tokens, routing);
        place->second = dispatched_rows(routing);
        place->second.of_parts = rows_of_parts(routing, group.split);
      }
      all.push_back(place->second);
    }
  }
  return all;
}

std::vector<Count> AssumedRows::loads() const {
  std::vector<Count> of_experts(static_cast<std::size_t>(plan_.model.experts.number));
  for (const int layer : layers_with_experts())
    for (const Count rows : plan_.rows(rank_))
      std::ranges::transform(of_experts, rows_of_experts(layer, own_tokens(rows)),
                             of_experts.begin(), std::plus());
  const auto own = static_cast<std::size_t>(split_.experts.experts(plan_.model.experts.number));
  std::vector<Count> loads;
  for (std::size_t first = 0; first < of_experts.size(); first += own)
    loads.push_back(sum_of(std::span(of_experts).subspan(first, own)));
  return loads;
}

std::vector<Count> AssumedRows::rows_of_experts(int layer, Count tokens) const {
  std::vector<Count> all(static_cast<std::size_t>(plan_.model.experts.number));
  for (const auto& of_part : sources_)
    for (const ChoiceSource source : of_part)
      std::ranges::transform(all, rows_from(source, layer, tokens), all.begin(), std::plus());
  return all;
}

std::vector<int> AssumedRows::layers_with_experts() const {
  std::vector<int> layers;
  const std::vector<int> rank_of_stage = plan_.schedule.rank_of_stage();
  for (int s = 0; s < plan_.schedule.stages; ++s) {
    if (rank_of_stage[static_cast<std::size_t>(s)] != plan_.place(rank_, Axis::pp)) continue;
    const StageLayers own = layers_of_stage(plan_.model.layers, plan_.schedule.stages, s);
    for (int layer = own.first; layer < own.first + own.count; ++layer)
      if (plan_.model.experts.in_layer(layer)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace lockstep
