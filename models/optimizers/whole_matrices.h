// Steps of matrices by rules that need all elements in one place. Matrices take their steps in rounds:
// in each, a rank has at most one whole matrix. Where ranks have parts of matrices, an exchange
// brings the directions of one matrix's elements to a rank that owns it, and takes them back.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/optimizers/matrix_rule.h"
#include "models/optimizers/optimizers.h"

namespace lockstep {

// Where a rank's elements of matrices come together.
class MatrixExchange {
 public:
  struct Round {
    struct Piece {
      std::size_t matrix;  // by its place in the rank's list of parameters
      Range range;         // of the rank's elements in its buffer of pieces
    };
    std::vector<Piece> pieces;
    std::optional<std::size_t> own;  // the matrix that this rank changes as a whole
    std::size_t first = 0;           // its first matrix, also if this rank has no piece of it
  };

  virtual ~MatrixExchange() = default;
  virtual const std::vector<Round>& rounds() const = 0;
  // Brings all ranks' pieces of this rank's own matrix to `whole`, row by row; and back. Every rank
  // calls it for each round. `whole` is empty without an own matrix.
  virtual void gather(std::size_t round, Slice pieces, Slice whole) = 0;
  virtual void scatter(std::size_t round, Slice whole, Slice pieces) = 0;
};

class WholeMatrices {
 public:
  using Rounds = std::vector<MatrixExchange::Round>;

  // Of a rank's parameters. Without an exchange this rank has all matrices whole. Takes memory if a
  // matrix needs it. All arguments must outlive it.
  WholeMatrices(const OptimizerSettings& settings, const Parameters& parameters, Backend& backend,
                Ledger& ledger, std::unique_ptr<MatrixExchange> exchange = {});

  // A step of all matrices that need it, with gradients times `gradient_scale`. To call before the
  // optimizers' own step. They have the parameters, each has some, and are the same in each call.
  void step(const std::vector<Optimizer*>& optimizers, double learning_rate, double gradient_scale);
  // The same in parts: begins a step, and then takes it for those matrices that are among parameters
  // `places` of the list. No round has matrices of two such parts.
  void begin_step() { ++steps_; }
  void step_within(std::span<const int> places, const std::vector<Optimizer*>& optimizers,
                   double learning_rate, double gradient_scale);

  // States of the matrices that this rank owns, and steps taken so far.
  std::vector<MatrixRule::Held> states() const;
  const Parameter& parameter(std::size_t matrix) const { return list_[matrix]; }
  // Of the parameters that it was made with.
  std::span<const Parameter> list() const { return list_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  // The rounds of a rank that has all matrices whole.
  static Rounds own_rounds(const OptimizerSettings& settings, std::span<const Parameter> list);
  // Bytes of the memory for whole matrices, charged as workspace; of their states, charged as optimizer;
  // and of this rank's pieces, if there is an exchange, charged as communication. For directions of
  // `dtype`.
  struct Kept {
    Count whole = 0, states = 0, pieces = 0;
  };
  static Kept kept_bytes(const OptimizerSettings& settings, std::span<const Parameter> list,
                         const Rounds& rounds, DType dtype);

 private:
  void find(const std::vector<Optimizer*>& optimizers);

  std::span<const Parameter> list_;
  std::unique_ptr<MatrixExchange> exchange_;
  const Rounds rounds_;
  // The optimizer that has a parameter, and its place there.
  std::map<std::string_view, std::pair<Optimizer*, std::size_t>> places_;
  Tensor whole_, pieces_;
  std::unique_ptr<MatrixRule> rule_;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep
