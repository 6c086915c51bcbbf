#include "models/optimizers/whole_matrices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

Count columns_of(const HiddenMatrices& hidden) {
  return std::accumulate(hidden.columns.begin(), hidden.columns.end(), Count{0});
}

Count elements_of(const HiddenMatrices& hidden) { return hidden.rows * columns_of(hidden); }

// The shapes of the matrices that this rank changes, in all rounds.
std::vector<NewtonSchulz::Shape> shapes_of(std::span<const Parameter> list,
                                           const WholeMatrices::Rounds& rounds) {
  std::vector<NewtonSchulz::Shape> shapes;
  for (const MatrixExchange::Round& round : rounds)
    if (round.own)
      for (const Count columns : list[*round.own].hidden.columns)
        shapes.push_back({list[*round.own].hidden.rows, columns});
  return shapes;
}

Count largest_own(std::span<const Parameter> list, const WholeMatrices::Rounds& rounds) {
  Count largest = 0;
  for (const MatrixExchange::Round& round : rounds)
    if (round.own) largest = std::max(largest, elements_of(list[*round.own].hidden));
  return largest;
}

Count elements_of(const MatrixExchange::Round& round) {
  Count elements = 0;
  for (const MatrixExchange::Round::Piece& piece : round.pieces) elements += piece.range.count;
  return elements;
}

}  // namespace

WholeMatrices::WholeMatrices(const OptimizerSettings& settings, const Parameters& parameters,
                             Backend& backend, Ledger& ledger,
                             std::unique_ptr<MatrixExchange> exchange)
    : list_(parameters.list()),
      backend_(backend),
      exchange_(std::move(exchange)),
      rounds_(exchange_ ? exchange_->rounds() : own_rounds(settings, list_)) {
  if (rounds_.empty()) return;
  const DType dtype = statistics_type(parameters.dtype());
  whole_ = Tensor({largest_own(list_, rounds_)}, dtype, ledger, MemoryUse::workspace);
  if (exchange_)
    pieces_ =
        Tensor({kept_elements(list_, rounds_).pieces}, dtype, ledger, MemoryUse::communication);
  newton_schulz_.emplace(shapes_of(list_, rounds_), dtype, ledger);
}

WholeMatrices::Rounds WholeMatrices::own_rounds(const OptimizerSettings& settings,
                                                std::span<const Parameter> list) {
  Rounds rounds;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (needs_whole(settings, list[i]))
      rounds.push_back({.pieces = {{i, {0, list[i].count}}}, .own = i});
  return rounds;
}

WholeMatrices::Kept WholeMatrices::kept_elements(std::span<const Parameter> list,
                                                 const Rounds& rounds) {
  Kept kept{.whole =
                largest_own(list, rounds) + NewtonSchulz::kept_elements(shapes_of(list, rounds))};
  for (const MatrixExchange::Round& round : rounds)
    kept.pieces = std::max(kept.pieces, elements_of(round));
  return kept;
}

void WholeMatrices::find(const std::vector<Optimizer*>& optimizers) {
  if (!places_.empty()) return;
  for (Optimizer* const optimizer : optimizers)
    for (std::size_t i = 0; i < optimizer->list().size(); ++i)
      places_[optimizer->list()[i].name] = {optimizer, i};
}

void WholeMatrices::change(const Parameter& parameter, Slice whole) {
  const auto& [rows, columns] = parameter.hidden;
  const Matrix all(whole, rows, columns_of(parameter.hidden));
  Count first = 0;
  for (const Count count : columns) {
    // Weights are stored as [in, out].
    const double factor =
        std::sqrt(std::max(1.0, static_cast<double>(count) / static_cast<double>(rows)));
    newton_schulz_->run(backend_, all.columns_from(first, count), factor);
    first += count;
  }
}

void WholeMatrices::step(const std::vector<Optimizer*>& optimizers, double learning_rate,
                         double gradient_scale) {
  find(optimizers);
  for (std::size_t r = 0; r < rounds_.size(); ++r) {
    const auto& [pieces, own] = rounds_[r];
    const Slice whole = own ? whole_.slice().first(elements_of(list_[*own].hidden)) : Slice{};
    const Slice mine = exchange_ ? pieces_.slice().first(elements_of(rounds_[r])) : whole;
    for (const auto& [matrix, range] : pieces) {
      const auto [optimizer, number] = places_.at(list_[matrix].name);
      optimizer->begin_matrix(number, gradient_scale, mine.part(range.first, range.count));
    }
    if (exchange_) exchange_->gather(r, mine, whole);
    if (own) change(list_[*own], whole);
    if (exchange_) exchange_->scatter(r, whole, mine);
    for (const auto& [matrix, range] : pieces) {
      const auto [optimizer, number] = places_.at(list_[matrix].name);
      optimizer->end_matrix(number, learning_rate, mine.part(range.first, range.count));
    }
  }
}

}  // namespace lockstep
