#include "models/optimizers/galore.h"

#include <algorithm>

#include "models/ops/singular_vectors.h"

namespace lockstep {
namespace {

constexpr std::string_view input_projector = "input_projector",
                           output_projector = "output_projector",
                           projected_first = "projected_first_moment",
                           projected_second = "projected_second_moment";

std::vector<MatrixState> states_of(const ProjectedMatrix& matrix) {
  std::vector<MatrixState> states;
  if (matrix.inputs) states.push_back({input_projector, matrix.rows, matrix.rank});
  if (matrix.outputs) states.push_back({output_projector, matrix.rank, matrix.columns});
  states.push_back({projected_first, matrix.small_rows(), matrix.small_columns()});
  states.push_back({projected_second, matrix.small_rows(), matrix.small_columns()});
  return states;
}

// Elements of the workspace: those of the matrices' type, and scratch in f64.
struct Room {
  Count small = 0, half = 0, scratch = 0;

  Room(const OptimizerSettings& settings, std::span<const HiddenMatrices> all) {
    for (const HiddenMatrices& hidden : all) {
      const ProjectedMatrix matrix(settings.galore, hidden);
      small = std::max(small, matrix.small());
      half = std::max(half, matrix.half());
      scratch = std::max(scratch, singular_scratch(matrix.rows, matrix.columns));
    }
  }
  Count bytes(DType dtype) const {
    return (2 * small + half) * element_bytes(dtype) + scratch * element_bytes(DType::f64);
  }
};

class Subspaces final : public MatrixRule {
 public:
  Subspaces(const OptimizerSettings& settings, std::span<const Parameter> list,
            std::span<const std::size_t> matrices, DType dtype, Backend& backend, Ledger& ledger)
      : settings_(settings), list_(list), backend_(backend) {
    const Room room(settings, hidden_of(list, matrices));
    gradient_ = Tensor({room.small}, dtype, ledger, MemoryUse::workspace);
    direction_ = Tensor({room.small}, dtype, ledger, MemoryUse::workspace);
    half_ = Tensor({room.half}, dtype, ledger, MemoryUse::workspace);
    scratch_ = Tensor({room.scratch}, DType::f64, ledger, MemoryUse::workspace);
    for (const std::size_t matrix : matrices)
      for (const MatrixState& state :
           states_of(ProjectedMatrix(settings.galore, list[matrix].hidden))) {
        Tensor& memory = memory_.emplace_back(
            Tensor({state.rows * state.columns}, dtype, ledger, MemoryUse::optimizer));
        memory.slice().device->zero(memory.slice());
        held_.push_back({matrix, state, memory.slice()});
      }
  }

  std::vector<Held> states() const override { return held_; }

  void change(std::size_t matrix, Slice whole, std::int64_t step) override {
    const ProjectedMatrix shape(settings_.galore, list_[matrix].hidden);
    const Matrix all(whole, shape.rows, shape.columns);
    const Matrix p = state(matrix, input_projector), q = state(matrix, output_projector);
    if ((step - 1) % settings_.galore_period == 0)
      backend_.singular_vectors(all, p, q, scratch_.slice());

    const auto part = [&](const Tensor& room, Count rows, Count columns) {
      return Matrix(room.slice().first(rows * columns), rows, columns);
    };
    const Matrix small = part(gradient_, shape.small_rows(), shape.small_columns()),
                 moved = part(direction_, shape.small_rows(), shape.small_columns());
    const bool both = shape.inputs && shape.outputs;
    const Matrix half = part(half_, both ? shape.rows : 0, shape.rank);
    if (both) backend_.gemm(all, q.t(), half, 0);
    if (shape.inputs)
      backend_.gemm(p.t(), both ? half : all, small, 0);
    else
      backend_.gemm(all, q.t(), small, 0);

    // AdamW's step of zeros is its direction.
    moved.slice.device->zero(moved.slice);
    backend_.adamw(moved.slice, small.slice, state(matrix, projected_first).slice,
                   state(matrix, projected_second).slice,
                   {.learning_rate = -settings_.galore_scale,
                    .beta1 = settings_.beta1,
                    .beta2 = settings_.beta2,
                    .eps = settings_.eps,
                    .weight_decay = 0,
                    .gradient_scale = 1,
                    .step = step});
    if (both) backend_.gemm(p, moved, half, 0);
    if (shape.outputs)
      backend_.gemm(both ? half : moved, q, all, 0);
    else
      backend_.gemm(p, moved, all, 0);
  }

 private:
  // Empty if there is none.
  Matrix state(std::size_t matrix, std::string_view name) const {
    for (const Held& held : held_)
      if (held.matrix == matrix && held.state.name == name)
        return Matrix(held.memory, held.state.rows, held.state.columns);
    return Matrix({}, 0, 0);
  }

  const OptimizerSettings settings_;
  std::span<const Parameter> list_;
  Backend& backend_;
  std::vector<Tensor> memory_;
  std::vector<Held> held_;
  Tensor gradient_, direction_, half_, scratch_;
};

}  // namespace

ProjectedMatrix::ProjectedMatrix(const ProjectionSettings& settings, const HiddenMatrices& hidden)
    : rows(hidden.rows), columns(hidden.all_columns()), rank(settings.rank) {
  const std::string& how = settings.projection;
  const bool is_wide = columns >= rows;
  inputs = how == "right" || how == "full" || (how == "std" && is_wide) ||
           (how == "reverse_std" && !is_wide);
  outputs = !inputs || how == "full";
}

const MatrixRuleEntry Galore::rule = {
    .state_names =
        [] {
          return std::vector{input_projector, output_projector, projected_first, projected_second};
        },
    .states =
        [](const OptimizerSettings& settings, const HiddenMatrices& hidden) {
          return states_of({settings.galore, hidden});
        },
    .kept_bytes = [](const OptimizerSettings& settings, std::span<const HiddenMatrices> all,
                     DType dtype) { return Room(settings, all).bytes(dtype); },
    .make = [](const OptimizerSettings& settings, std::span<const Parameter> list,
               std::span<const std::size_t> matrices, DType dtype, Backend& backend,
               Ledger& ledger) -> std::unique_ptr<MatrixRule> {
      return std::make_unique<Subspaces>(settings, list, matrices, dtype, backend, ledger);
    }};

Projectors Galore::projectors(std::span<const MatrixRule::Held> states, std::size_t matrix) {
  Projectors found;
  for (const MatrixRule::Held& held : states) {
    if (held.matrix != matrix) continue;
    if (held.state.name == input_projector) found.inputs = held.memory;
    if (held.state.name == output_projector) found.outputs = held.memory;
  }
  return found;
}

std::vector<std::string> Galore::projections() {
  return {"std", "reverse_std", "left", "right", "full"};
}

Count Galore::largest_rank(std::span<const Parameter> list) {
  Count rank = 0;
  for (const Parameter& parameter : list) {
    if (!parameter.hidden.exist()) continue;
    const Count side = std::min(parameter.hidden.rows, parameter.hidden.all_columns());
    rank = rank == 0 ? side : std::min(rank, side);
  }
  return rank;
}

void Galore::direct(const Part& part, double gradient_scale, Slice direction) {
  backend_.nesterov(direction, part.gradients, {}, 0, gradient_scale);
}

}  // namespace lockstep
