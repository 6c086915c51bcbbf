#include "parallel/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "collectives/base/error.h"
#include "models/gpt/gpt_stage.h"
#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

using enum Axis;

Share Plan::share(int rank) const {
  if (!computes(rank)) return {};
  return Share{.count = options.global_batch}.part(sequence_group(rank), sequence_groups());
}

int Plan::validated_at_once() const {
  const int groups = sequence_groups();
  const Share smallest = Share{.count = options.global_batch}.part(groups - 1, groups);
  return smallest.part(0, options.micro_batches).count;
}

std::vector<Count> Plan::rows(int rank) const {
  const Share own = share(rank);
  std::vector<Count> rows;
  for (int m = 0; m < options.micro_batches; ++m)
    rows.push_back(Count{own.part(m, options.micro_batches).count} * tokens_of_sequence() /
                   length(cp));
  return rows;
}

bool Plan::has_even_batches() const {
  return options.global_batch % (sequence_groups() * options.micro_batches) == 0;
}

bool Plan::keeps_own_state() const {
  return options.local_steps ||
         (compresses_gradients() && exchange_from_text(options.exchange).has_feedback());
}

int Plan::group_ranks() const {
  const std::string& text = options.reshard_after_forward;
  const char* const end = text.data() + text.size();
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? number : 0;
}

bool Plan::all_reduces_gradients() const {
  const int stage = zero_stage();
  return stage == 0 || (stage < 3 && options.zero_volume == "all-reduce");
}

LayerSplit Plan::split(int rank) const {
  LayerSplit split{.ranks = length(tp),
                   .rank = place(rank, tp),
                   .by_sequence = options.sequence_parallel && length(tp) > 1,
                   .keeps_gathered = options.keep_gathered,
                   .vocabulary_multiple = options.vocabulary_multiple,
                   .experts = {}};
  const int parts = expert_tensor_ranks();
  split.experts = {.ranks = expert_ranks(),
                   .rank = expert_rank(rank),
                   .tensor_ranks = parts,
                   .tensor_rank = split.rank % parts,
                   .by_sequence = split.by_sequence,
                   .most_tokens = split.outer_rows(most_tokens()),
                   .weights_at_experts = expert_ranks() > 1 && options.router_weights == "expert"};
  return split;
}

// The first micro-batch of the first replica is as large as any.
Count Plan::most_tokens() const {
  const Share largest = Share{.count = options.global_batch}.part(0, sequence_groups());
  return Count{largest.part(0, options.micro_batches).count} * tokens_of_sequence() / length(cp);
}

ReplicaGroup Plan::replicas(int rank, ParameterSet set) const {
  const int apart = set == ParameterSet::experts ? expert_ranks() : 1;
  return {.copies = copies() / apart,
          .copy = copy(rank) / apart,
          .replicas = zero_stage() > 0 ? options.replicas : 1};
}

namespace {

template <typename Keep>
Mesh::Group members_where(const Plan& plan, int rank, Keep keep) {
  Mesh::Group kept;
  for (const int other : plan.mesh.group_of(rank, replica_axes()))
    if (keep(other)) kept.push_back(other);
  return kept;
}

}  // namespace

Mesh::Group Plan::expert_group(int rank) const {
  const auto block = [&](int of) { return copy(of) / expert_ranks(); };
  return members_where(*this, rank, [&](int other) { return block(other) == block(rank); });
}

Mesh::Group Plan::replica_group(int rank, ParameterSet set) const {
  return members_where(*this, rank, [&](int other) {
    return set == ParameterSet::dense || expert_rank(other) == expert_rank(rank);
  });
}

namespace {

// Under sequence parallelism, tensor-parallel ranks have different tokens, too.
Mesh::Group group_with_tokens(const Plan& plan, int rank, std::vector<Axis> along) {
  if (plan.split(rank).by_sequence) along.push_back(tp);
  return plan.mesh.group_of(rank, along);
}

}  // namespace

Mesh::Group Plan::sequence_group_of_routers(int rank) const {
  return group_with_tokens(*this, rank, {cp});
}

Mesh::Group Plan::router_group(int rank) const {
  return group_with_tokens(*this, rank, {replica_axes().begin(), replica_axes().end()});
}

RankPlace Plan::rank_place(int rank, ParameterSet set) const {
  RankPlace at = place_in_split(split(rank));
  at.place = mesh.place_of(rank);
  // Experts lie on every so manyth copy.
  const int apart = set == ParameterSet::experts ? expert_ranks() : 1;
  for (const Axis axis : replica_axes())
    if (const int same = length(axis) / std::gcd(length(axis), apart); same > 1)
      at.undivided[axis] = {Placed::partial, same};
  return at;
}

ContextSplit Plan::context(int rank) const {
  if (length(cp) == 1) return {};
  const int inner = *options.ulysses_ranks, here = place(rank, cp), groups = length(cp) / inner;
  // One group has all tokens, in their order.
  const TokenOrder order =
      groups == 1 ? TokenOrder::contiguous : token_order_from_name(options.layout);
  return {.layout = {.order = order,
                     .ranks = groups,
                     .rank = here / inner,
                     .parts = inner,
                     .part = here % inner,
                     .balanced = groups > 1 && options.layout == "balanced"},
          .rings = options.ring_ranks.has_value() && groups > 1,
          .returns_all_hops = options.gradient_hops == "c"};
}

bool Plan::recomputes_stages() const {
  const bool cuts_backward = schedule.has(Pass::input_gradient);
  return (schedule.stages > 1 || cuts_backward) &&
         model_options(options).recompute == Recompute::full;
}

ModelOptions Plan::stage_options() const {
  ModelOptions of_stages = model_options(options);
  if (recomputes_stages()) of_stages.recompute = Recompute::none;
  return of_stages;
}

bool Plan::is_pair(const Action& action, const Action& next) const {
  const auto has_experts = [this](const Action& of) {
    const StageLayers layers = layers_of_stage(model.layers, schedule.stages, of.stage);
    return model.experts.layers_among(layers.first, layers.count) > 0;
  };
  return options.overlap_pairs && action.with_next && action.pass == Pass::forward &&
         (next.pass == Pass::backward || next.pass == Pass::input_gradient) &&
         has_experts(action) && has_experts(next);
}

std::pair<int, int> Plan::ends_of_pipeline() const {
  const std::vector<int> rank_of_stage = schedule.rank_of_stage();
  return {rank_of_stage.front(), rank_of_stage.back()};
}

PipelineShape Plan::shape() const {
  return {.ranks = length(pp),
          .micro_batches = options.micro_batches,
          .virtual_stages = options.virtual_stages,
          .group = options.group_size};
}

std::string Plan::schedule_name() const {
  return options.schedule_file.empty() ? options.schedule : "";
}

}  // namespace lockstep
