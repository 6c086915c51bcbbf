#include "models/optimizers/whole_matrices.h"

#include <algorithm>
#include <numeric>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

// The matrices that this rank changes, in all rounds.
std::vector<std::size_t> owned_in(const WholeMatrices::Rounds& rounds) {
  std::vector<std::size_t> owned;
  for (const MatrixExchange::Round& round : rounds)
    if (round.own) owned.push_back(*round.own);
  return owned;
}

Count largest_own(std::span<const Parameter> list, const WholeMatrices::Rounds& rounds) {
  Count largest = 0;
  for (const MatrixExchange::Round& round : rounds)
    if (round.own) largest = std::max(largest, list[*round.own].hidden.elements());
  return largest;
}

Count elements_of(const MatrixExchange::Round& round) {
  Count elements = 0;
  for (const MatrixExchange::Round::Piece& piece : round.pieces) elements += piece.range.count;
  return elements;
}

Count most_pieces(const WholeMatrices::Rounds& rounds) {
  Count most = 0;
  for (const MatrixExchange::Round& round : rounds) most = std::max(most, elements_of(round));
  return most;
}

}  // namespace

WholeMatrices::WholeMatrices(const OptimizerSettings& settings, const Parameters& parameters,
                             Backend& backend, Ledger& ledger,
                             std::unique_ptr<MatrixExchange> exchange)
    : list_(parameters.list()),
      exchange_(std::move(exchange)),
      rounds_(exchange_ ? exchange_->rounds() : own_rounds(settings, list_)) {
  if (rounds_.empty()) return;
  const DType dtype = statistics_type(parameters.dtype());
  whole_ = Tensor({largest_own(list_, rounds_)}, dtype, ledger, MemoryUse::workspace);
  if (exchange_) pieces_ = Tensor({most_pieces(rounds_)}, dtype, ledger, MemoryUse::communication);
  const std::vector<std::size_t> owned = owned_in(rounds_);
  rule_ = matrix_rule(settings.name)->make(settings, list_, owned, dtype, backend, ledger);
}

WholeMatrices::Rounds WholeMatrices::own_rounds(const OptimizerSettings& settings,
                                                std::span<const Parameter> list) {
  Rounds rounds;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (needs_whole(settings, list[i]))
      rounds.push_back({.pieces = {{i, {0, list[i].count}}}, .own = i, .first = i});
  return rounds;
}

WholeMatrices::Kept WholeMatrices::kept_bytes(const OptimizerSettings& settings,
                                              std::span<const Parameter> list, const Rounds& rounds,
                                              DType dtype) {
  const Count element = element_bytes(dtype);
  const std::vector<std::size_t> owned = owned_in(rounds);
  const std::vector<HiddenMatrices> matrices = hidden_of(list, owned);
  Kept kept{.whole = largest_own(list, rounds) * element +
                     matrix_rule(settings.name)->kept_bytes(settings, matrices, dtype)};
  for (const std::size_t matrix : owned)
    for (const MatrixState& state : matrix_states_of(settings, list[matrix]))
      kept.states += state.rows * state.columns * element;
  kept.pieces = most_pieces(rounds) * element;
  return kept;
}

void WholeMatrices::find(const std::vector<Optimizer*>& optimizers) {
  if (!places_.empty()) return;
  for (Optimizer* const optimizer : optimizers)
    for (std::size_t i = 0; i < optimizer->list().size(); ++i)
      places_[optimizer->list()[i].name] = {optimizer, i};
}

std::vector<MatrixRule::Held> WholeMatrices::states() const {
  return rule_ ? rule_->states() : std::vector<MatrixRule::Held>{};
}

void WholeMatrices::step(const std::vector<Optimizer*>& optimizers, double learning_rate,
                         double gradient_scale) {
  begin_step();
  std::vector<int> all(list_.size());
  std::iota(all.begin(), all.end(), 0);
  step_within(all, optimizers, learning_rate, gradient_scale);
}

void WholeMatrices::step_within(std::span<const int> places,
                                const std::vector<Optimizer*>& optimizers, double learning_rate,
                                double gradient_scale) {
  find(optimizers);
  for (std::size_t r = 0; r < rounds_.size(); ++r) {
    const auto& [pieces, own, first] = rounds_[r];
    if (std::ranges::find(places, static_cast<int>(first)) == places.end()) continue;
    const Slice whole = own ? whole_.slice().first(list_[*own].hidden.elements()) : Slice{};
    const Slice mine = exchange_ ? pieces_.slice().first(elements_of(rounds_[r])) : whole;
    for (const auto& [matrix, range] : pieces) {
      const auto [optimizer, number] = places_.at(list_[matrix].name);
      optimizer->begin_matrix(number, gradient_scale, mine.part(range.first, range.count));
    }
    if (exchange_) exchange_->gather(r, mine, whole);
    if (own) rule_->change(*own, whole, steps_);
    if (exchange_) exchange_->scatter(r, whole, mine);
    for (const auto& [matrix, range] : pieces) {
      const auto [optimizer, number] = places_.at(list_[matrix].name);
      optimizer->end_matrix(number, learning_rate, mine.part(range.first, range.count));
    }
  }
}

}  // namespace lockstep
