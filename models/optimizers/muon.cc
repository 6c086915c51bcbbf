#include "models/optimizers/muon.h"

#include <algorithm>
#include <cmath>

#include "models/optimizers/newton_schulz.h"

namespace lockstep {
namespace {

std::vector<NewtonSchulz::Shape> shapes_of(std::span<const HiddenMatrices> all) {
  std::vector<NewtonSchulz::Shape> shapes;
  for (const HiddenMatrices& hidden : all)
    for (const Count columns : hidden.columns) shapes.push_back({hidden.rows, columns});
  return shapes;
}

class OrthogonalFactors final : public MatrixRule {
 public:
  OrthogonalFactors(std::span<const Parameter> list, std::span<const std::size_t> matrices,
                    DType dtype, Backend& backend, Ledger& ledger)
      : list_(list),
        backend_(backend),
        newton_schulz_(shapes_of(hidden_of(list, matrices)), dtype, ledger) {}

  void change(std::size_t matrix, Slice whole, std::int64_t) override {
    const HiddenMatrices& hidden = list_[matrix].hidden;
    const Matrix all(whole, hidden.rows, hidden.all_columns());
    Count first = 0;
    for (const Count count : hidden.columns) {
      // Weights are stored as [in, out].
      const double factor =
          std::sqrt(std::max(1.0, static_cast<double>(count) / static_cast<double>(hidden.rows)));
      newton_schulz_.run(backend_, all.columns_from(first, count), factor);
      first += count;
    }
  }

 private:
  std::span<const Parameter> list_;
  Backend& backend_;
  NewtonSchulz newton_schulz_;
};

}  // namespace

const MatrixRuleEntry Muon::rule = {
    .kept_bytes =
        [](const OptimizerSettings&, std::span<const HiddenMatrices> all, DType dtype) {
          return NewtonSchulz::kept_elements(shapes_of(all)) * element_bytes(dtype);
        },
    .make = [](const OptimizerSettings&, std::span<const Parameter> list,
               std::span<const std::size_t> matrices, DType dtype, Backend& backend,
               Ledger& ledger) -> std::unique_ptr<MatrixRule> {
      return std::make_unique<OrthogonalFactors>(list, matrices, dtype, backend, ledger);
    }};

void Muon::direct(const Part& part, double gradient_scale, Slice direction) {
  backend_.nesterov(direction, part.gradients, part.states[0], options_.muon_momentum,
                    gradient_scale);
}

}  // namespace lockstep
