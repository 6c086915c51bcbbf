// What an optimizer does with the directions of a whole matrix, on the rank that owns it: see
// whole_matrices.h. States of such matrices need not have a number for each element.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

struct OptimizerSettings;

// A state of a whole matrix, and its shape.
struct MatrixState {
  std::string_view name;
  Count rows = 0, columns = 0;
};

class MatrixRule {
 public:
  // A state in memory, of a matrix by its place in the list of parameters.
  struct Held {
    std::size_t matrix;
    MatrixState state;
    Slice memory;
  };

  virtual ~MatrixRule() = default;
  // Replaces the directions of all elements of a matrix by those of a step, numbered from 1.
  virtual void change(std::size_t matrix, Slice whole, std::int64_t step) = 0;
  // All states, as zeros before the first step.
  virtual std::vector<Held> states() const { return {}; }
};

// The rule of an optimizer, for matrices whose directions have `dtype`.
struct MatrixRuleEntry {
  // The names of all states of matrices, and those of one. None: it has none.
  std::vector<std::string_view> (*state_names)() = nullptr;
  std::vector<MatrixState> (*states)(const OptimizerSettings&, const HiddenMatrices&) = nullptr;
  // Bytes that it keeps as workspace in order to change these matrices.
  Count (*kept_bytes)(const OptimizerSettings&, std::span<const HiddenMatrices>, DType) = nullptr;
  // With memory for these matrices of the list, charged as workspace, and for their states, charged as
  // optimizer. The list, backend and ledger must outlive it.
  std::unique_ptr<MatrixRule> (*make)(const OptimizerSettings&, std::span<const Parameter>,
                                      std::span<const std::size_t> matrices, DType, Backend&,
                                      Ledger&) = nullptr;
};

}  // namespace lockstep
