#include "parallel/matrices/owners.h"

#include <algorithm>
#include <numeric>

#include "models/ops/narrow_types.h"
#include "parallel/checkpoint/copy.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {
namespace {

// Operations of Newton-Schulz, up to a factor.
Count work_of(const HiddenMatrices& hidden) {
  Count work = 0;
  for (const Count columns : hidden.columns) {
    const Count side = std::min(hidden.rows, columns);
    work += 2 * hidden.rows * columns * side + side * side * side;
  }
  return work;
}

// The elements that each shard's rank holds of the parameters that `rank` has a part of.
std::vector<std::vector<Range>> held_by_shards(const Plan& plan, const RankModel& model,
                                               ParameterSet set) {
  const std::vector<Parameter>& list = model.of(set).list();
  const auto sharding = sharding_of(plan, set);
  if (!sharding) {
    std::vector<Range> whole;
    for (const Parameter& parameter : list) whole.push_back({0, parameter.count});
    return {whole};
  }
  const RankUnits units = sharded_units(model, *sharding, set);
  const int shards = units.replicas.shards();
  std::vector<std::vector<Range>> held(static_cast<std::size_t>(shards),
                                       std::vector<Range>(list.size()));
  for (const UnitParameters& unit : units.all) {
    const ShardLayout layout = unit.layout(shards);
    for (int shard = 0; shard < shards; ++shard)
      for (const ShardLayout::Piece& piece : layout.pieces(shard))
        held[static_cast<std::size_t>(shard)]
            [static_cast<std::size_t>(unit.parameters[piece.parameter])] = piece.range;
  }
  return held;
}

}  // namespace

MatrixOwners::MatrixOwners(const Plan& plan, int rank, ParameterSet set)
    : whole_(whole_boxes(plan.model)) {
  find_holders(plan, rank, set);
  const OptimizerSettings settings = optimizer_settings(plan.options);
  if (!plan.options.optimizer_in_backward) {
    deal(settings, {0, std::ssize(holders_[place_].list)});
    return;
  }
  const RankOutline outline(plan, rank);
  for (const auto& [number, stage] : outline.model().stages)
    for (const Unit& unit : stage.units())
      if (unit.set == set) deal(settings, {unit.first, unit.last - unit.first + 1});
}

void MatrixOwners::find_holders(const Plan& plan, int rank, ParameterSet set) {
  for (const int other : plan.mesh.group_of(rank, {Axis::tp})) {
    const RankOutline outline(plan, other);
    const auto held = held_by_shards(plan, outline.model(), set);
    // With shards, the ranks of one replica of them; else the rank alone.
    const Mesh::Group replicas = plan.replica_group(other, set);
    const ReplicaGroup at = plan.replicas(other, set);
    const int first = held.size() > 1 ? at.replica() * at.shards() : at.copy;
    for (std::size_t shard = 0; shard < held.size(); ++shard) {
      ranks_.push_back(replicas[static_cast<std::size_t>(first) + shard]);
      holders_.push_back({outline.parameters(set).list(), held[shard]});
    }
  }
  place_ = static_cast<std::size_t>(std::ranges::find(ranks_, rank) - ranks_.begin());
}

// Odd rounds go backwards, so that no rank always has the most work of a round.
void MatrixOwners::deal(const OptimizerSettings& settings, Range places) {
  const std::vector<Parameter>& list = holders_[place_].list;
  std::vector<std::size_t> matrices;
  for (Count i = places.first; i < places.first + places.count; ++i)
    if (const auto matrix = static_cast<std::size_t>(i); needs_whole(settings, list[matrix]))
      matrices.push_back(matrix);
  std::ranges::stable_sort(matrices, std::ranges::greater{},
                           [&](std::size_t i) { return work_of(list[i].hidden); });
  const std::size_t owners = ranks_.size();
  for (std::size_t first = 0; first < matrices.size(); first += owners) {
    const std::size_t number = std::min(owners, matrices.size() - first);
    std::vector<std::size_t>& of_round =
        owned_.emplace_back(matrices.begin() + static_cast<std::ptrdiff_t>(first),
                            matrices.begin() + static_cast<std::ptrdiff_t>(first + number));
    if (rounds_.size() % 2 == 1 && number == owners) std::ranges::reverse(of_round);
    MatrixExchange::Round& round = rounds_.emplace_back();
    round.first = of_round.front();
    if (place_ < number) round.own = of_round[place_];
    Count at = 0;
    for (const std::size_t matrix : of_round) {
      const Count count = holders_[place_].held[matrix].count;
      if (count > 0) round.pieces.push_back({matrix, {at, count}});
      at += count;
    }
  }
}

MatrixOwners::Counts MatrixOwners::counts(std::size_t round) const {
  Counts counts{.to_owners = std::vector<Count>(ranks_.size()),
                .of_own = std::vector<Count>(ranks_.size())};
  for (std::size_t owner = 0; owner < owned_[round].size(); ++owner)
    counts.to_owners[owner] = holders_[place_].held[owned_[round][owner]].count;
  if (const auto own = rounds_[round].own)
    for (std::size_t holder = 0; holder < ranks_.size(); ++holder)
      counts.of_own[holder] = holders_[holder].held[*own].count;
  return counts;
}

std::vector<PlacedBox> MatrixOwners::boxes_of_own(std::size_t round, std::size_t holder) const {
  const std::size_t own = *rounds_[round].own;
  const Parameter& part = holders_[holder].list[own];
  const Range held = holders_[holder].held[own];
  if (held.count == 0) return {};
  const Count first = part.offset + held.first;
  std::vector<PlacedBox> boxes =
      boxes_of(std::span(&part, 1), {first, held.count}, whole_, nullptr);
  for (PlacedBox& placed : boxes) placed.place -= first;
  return boxes;
}

Count MatrixOwners::columns_of_own(std::size_t round) const {
  const Parameter& part = holders_[place_].list[*rounds_[round].own];
  return whole_.find(part.whole_name())->second.columns.count;
}

Count MatrixOwners::most_received() const {
  Count most = 0;
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    const std::vector<Count> received = counts(round).of_own;
    most = std::max(most, std::accumulate(received.begin(), received.end(), Count{0}));
  }
  return most;
}

Traffic MatrixOwners::traffic() const {
  Traffic traffic;
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    const auto [to_owners, of_own] = counts(round);
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (other != place_)
        traffic += {2, to_owners[other] + of_own[other], 2, to_owners[other] + of_own[other]};
  }
  return traffic;
}

bool has_whole_matrices(const Plan& plan, const Parameters& parameters) {
  const OptimizerSettings settings = optimizer_settings(plan.options);
  return std::ranges::any_of(parameters.list(), [&](const Parameter& parameter) {
    return needs_whole(settings, parameter);
  });
}

namespace {

// Elements of the states of matrices that a rank writes to checkpoints.
Count written_states(const Plan& plan, int rank, const Parameters& parameters, ParameterSet set,
                     const WholeMatrices::Rounds& rounds) {
  const ReplicaGroup replicas = plan.replicas(rank, set);
  const bool is_sharded = sharding_of(plan, set).has_value();
  const int writers = is_sharded ? replicas.replicas : replicas.copies,
            writer = is_sharded ? replicas.replica() : replicas.copy;
  Count elements = 0;
  for (const MatrixExchange::Round& round : rounds)
    if (round.own && writer_of_matrix(*round.own, writers) == writer)
      for (const MatrixState& state :
           matrix_states_of(optimizer_settings(plan.options), parameters.list()[*round.own]))
        elements += state.rows * state.columns;
  return elements;
}

}  // namespace

Terms matrix_terms(const Plan& plan, int rank, const Parameters& parameters, ParameterSet set,
                   bool computes_on_host) {
  Terms terms{.part = PlanPart::matrices};
  if (!has_whole_matrices(plan, parameters)) return terms;
  const MatrixOwners owners(plan, rank, set);
  const OptimizerSettings settings = optimizer_settings(plan.options);
  const WholeMatrices::Kept kept = WholeMatrices::kept_bytes(
      settings, parameters.list(), owners.rounds(), statistics_type(plan.options.dtype));
  const Count element = element_bytes(statistics_type(plan.options.dtype));
  // A device accounts for its kernels' workspace and this one together.
  if (computes_on_host)
    terms.hold({.use = MemoryUse::workspace, .bytes = kept.whole, .formula = "a whole matrix"});
  const std::string states = "states of its matrices * " + std::to_string(element);
  if (kept.states > 0)
    terms.hold({.use = MemoryUse::optimizer, .bytes = kept.states, .formula = states});
  if (kept.states > 0 && copies_states(plan) && computes_on_host)
    terms.hold({.use = MemoryUse::checkpoints,
                .bytes = written_states(plan, rank, parameters, set, owners.rounds()) * element,
                .formula = "written " + states});
  if (owners.ranks().size() == 1) return terms;
  const std::string formula = "2(G-1)/G * Psi_hidden/G * " + std::to_string(element);
  terms.send(matrices_label, owners.traffic(), element, formula);
  terms.bytes_formula = formula;
  terms.messages_formula = "2(G-1) * rounds of matrices";
  terms.hold({.use = MemoryUse::communication,
              .bytes = kept.pieces + owners.most_received() * element,
              .formula = "pieces of matrices"});
  return terms;
}

}  // namespace lockstep
