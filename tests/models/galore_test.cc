// GaLore's steps against its algorithm written out with plain loops, and what subspaces promise.
#include "models/optimizers/galore.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "collectives/base/error.h"
#include "models/gpt/weights.h"
#include "models/ops/singular_vectors.h"
#include "models/optimizers/whole_matrices.h"
#include "tests/models/dense_matrix.h"

namespace lockstep {
namespace {

using test::Dense;
using test::product;
using test::transposed;

constexpr double rate = 0.1, clip = 0.5;

OptimizerSettings galore(int rank, const std::string& projection, int period = 3) {
  return {.name = "galore",
          .weight_decay = 0.5,
          .eps = 1e-3,  // R may be diagonal: what is rounding must not become a step
          .galore = {rank, projection},
          .galore_period = period,
          .galore_scale = 0.7};
}

// A model of one hidden matrix and a vector, with its optimizer.
struct OneMatrix {
  Ledger ledger;
  Parameters parameters{DType::f64, ledger};
  OptimizerSettings settings;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<WholeMatrices> matrices;

  OneMatrix(Count rows, Count columns, const OptimizerSettings& s) : settings(s) {
    parameters.add({.name = "matrix", .shape = {rows, columns}, .hidden = {rows, {columns}}});
    parameters.add({.name = "vector", .shape = {3}});
    parameters.allocate();
    std::ranges::fill(host_span<double>(parameters.values()), 0.25);
    optimizer = new_optimizer(settings, parameters, host_backend(), ledger);
    matrices.emplace(settings, parameters, host_backend(), ledger);
  }

  Dense value() const {
    const auto& shape = parameters.list()[0].shape;
    Dense x(shape[0], shape[1]);
    std::ranges::copy(host_span<double>(parameters.value(0)), x.values.begin());
    return x;
  }
  // Takes a step, and returns what it adds to the value decayed.
  Dense step(const Dense& gradient) {
    std::ranges::copy(gradient.values, host_span<double>(parameters.gradient(0)).begin());
    Dense before = value();
    matrices->step({optimizer.get()}, rate, clip);
    optimizer->step(rate, clip);
    Dense moved = value();
    for (std::size_t i = 0; i < moved.values.size(); ++i)
      moved.values[i] -= before.values[i] * (1 - rate * settings.weight_decay);
    return moved;
  }
};

Dense scaled(Dense x, double factor) {
  for (double& value : x.values) value *= factor;
  return x;
}

struct SideVectors {
  Dense left, right;
};
SideVectors side_vectors(const Dense& x, Count rank) {
  SideVectors found{Dense(x.rows, rank), Dense(rank, x.columns)};
  std::vector<double> scratch(static_cast<std::size_t>(singular_scratch(x.rows, x.columns)));
  singular_vectors(x.values.data(), x.columns, x.rows, x.columns, rank, found.left.values.data(),
                   found.right.values.data(), scratch.data());
  return found;
}

struct Sides {
  bool inputs, outputs;
};
// Of matrices with fewer inputs than outputs, as many, and more: [in, out].
constexpr std::array<std::pair<Count, Count>, 3> shapes = {{{5, 8}, {6, 6}, {9, 4}}};
const std::map<std::string, std::array<Sides, 3>> expected_sides = {
    {"std", {{{true, false}, {true, false}, {false, true}}}},
    {"reverse_std", {{{false, true}, {false, true}, {true, false}}}},
    {"left", {{{false, true}, {false, true}, {false, true}}}},
    {"right", {{{true, false}, {true, false}, {true, false}}}},
    {"full", {{{true, true}, {true, true}, {true, true}}}}};

class GaloreProjections : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, GaloreProjections, testing::ValuesIn(Galore::projections()),
                         [](const auto& test_info) { return test_info.param; });

TEST_P(GaloreProjections, StepAsTheAlgorithmWrittenOut) {
  constexpr int rank = 3, period = 3;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const auto [rows, columns] = shapes[s];
    const auto [inputs, outputs] = expected_sides.at(GetParam())[s];
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    OneMatrix one(rows, columns, galore(rank, GetParam(), period));
    Dense p(0, 0), q(0, 0);
    Dense first(inputs ? rank : rows, outputs ? rank : columns), second = first;
    for (int t = 1; t <= 5; ++t) {
      const Dense gradient = test::random_matrix(rows, columns, static_cast<unsigned>(10 + t));
      const Dense g = scaled(gradient, clip);
      if (t == 1 || t == 4) {
        SideVectors found = side_vectors(g, rank);
        p = found.left;
        q = found.right;
      }
      Dense r = g;
      if (inputs) r = product(transposed(p), r);
      if (outputs) r = product(r, transposed(q));
      Dense n = r;
      for (std::size_t i = 0; i < r.values.size(); ++i) {
        first.values[i] = 0.9 * first.values[i] + 0.1 * r.values[i];
        second.values[i] = 0.95 * second.values[i] + 0.05 * r.values[i] * r.values[i];
        n.values[i] = first.values[i] / (1 - std::pow(0.9, t)) /
                      (std::sqrt(second.values[i] / (1 - std::pow(0.95, t))) + 1e-3);
      }
      if (inputs) n = product(p, n);
      if (outputs) n = product(n, q);
      EXPECT_LT(test::furthest(one.step(gradient), scaled(n, -rate * 0.7)), 1e-12) << t;
    }
  }
}

// Closed forms of the header, with the states' bytes in memory.
TEST_P(GaloreProjections, KeepWhatTheirFormulasSay) {
  for (const auto& [rows, columns] : shapes)
    for (int rank = 1; rank <= std::min(rows, columns); ++rank) {
      const Count least = std::min(rows, columns), most = std::max(rows, columns);
      const std::map<std::string, Count> numbers = {{"std", rank * (least + 2 * most)},
                                                    {"reverse_std", rank * (most + 2 * least)},
                                                    {"left", rank * (columns + 2 * rows)},
                                                    {"right", rank * (rows + 2 * columns)},
                                                    {"full", rank * (rows + columns + 2 * rank)}};
      const OneMatrix one(rows, columns, galore(rank, GetParam()));
      constexpr Count of_vector = 2 * 3;
      EXPECT_EQ(one.ledger.bytes(MemoryUse::optimizer), 8 * (numbers.at(GetParam()) + of_vector));
      const WholeMatrices::Kept kept = WholeMatrices::kept_bytes(
          one.settings, one.parameters.list(),
          WholeMatrices::own_rounds(one.settings, one.parameters.list()), DType::f64);
      EXPECT_EQ(kept.states, 8 * numbers.at(GetParam()));
      EXPECT_EQ(one.ledger.bytes(MemoryUse::workspace), kept.whole);
    }
}

// A step has at most as many directions as the subspace; steps of one period share them.
TEST_P(GaloreProjections, MoveInASubspace) {
  constexpr int rank = 2;
  for (const auto& [rows, columns] : shapes) {
    OneMatrix one(rows, columns, galore(rank, GetParam(), 2));
    Dense moved(rows, columns);
    for (int t = 1; t <= 2; ++t) {
      const Dense step = one.step(test::random_matrix(rows, columns, static_cast<unsigned>(t)));
      for (std::size_t i = 0; i < step.values.size(); ++i) moved.values[i] += step.values[i];
    }
    const Dense left = side_vectors(moved, rank).left;
    EXPECT_LT(test::squared_distance(moved, product(left, product(transposed(left), moved))),
              1e-24);
    EXPECT_GT(test::squared_distance(moved, Dense(rows, columns)), 1e-6);
  }
}

// Adam aside, all directions together are the gradient: then GaLore is its inner optimizer.
TEST(GaloreSubspaces, OfAllDirectionsKeepTheGradient) {
  for (const auto& [rows, columns] : shapes) {
    const Dense gradient = test::random_matrix(rows, columns, 1);
    const SideVectors all = side_vectors(gradient, std::min(rows, columns));
    const bool is_wide = columns >= rows;
    const Dense other = test::random_matrix(rows, columns, 2);
    const Dense kept = is_wide ? product(all.left, product(transposed(all.left), other))
                               : product(product(other, transposed(all.right)), all.right);
    EXPECT_LT(test::furthest(kept, other), 1e-13);
  }
}

// The mean of projected gradients is the projected mean.
TEST(GaloreSubspaces, AreLinear) {
  const SideVectors side = side_vectors(test::random_matrix(6, 9, 3), 2);
  const Dense a = test::random_matrix(6, 9, 4), b = test::random_matrix(6, 9, 5);
  Dense mean = a;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    mean.values[i] = (a.values[i] + b.values[i]) / 2;
  const Dense p = transposed(side.left), of_mean = product(p, mean), of_a = product(p, a),
              of_b = product(p, b);
  for (std::size_t i = 0; i < of_a.values.size(); ++i)
    EXPECT_NEAR(of_mean.values[i], (of_a.values[i] + of_b.values[i]) / 2, 1e-15);
}

// What is orthogonal to the subspace waits for the next one. Zeros have no subspace at all.
TEST(GaloreSubspaces, IgnoreOtherDirectionsUntilTheyChange) {
  Dense first(4, 6), second(4, 6);
  first.at(0, 1) = 2;
  second.at(2, 3) = 1;
  OneMatrix one(4, 6, galore(1, "std", 2));
  EXPECT_NEAR(one.step(first).at(0, 1), -rate * 0.7, 1e-4);
  const Dense waits = one.step(second), goes = one.step(second);
  EXPECT_EQ(waits.at(2, 3), 0);
  EXPECT_LT(goes.at(2, 3), -0.01);

  OneMatrix none(4, 6, galore(1, "std", 2));
  for (const Dense& step : {none.step(Dense(4, 6)), none.step(second)})
    EXPECT_LT(test::squared_distance(step, Dense(4, 6)), 1e-30);
  EXPECT_LT(none.step(second).at(2, 3), -0.01);
}

// Adam would keep 1,572,864 and 21,233,664 numbers.
TEST(GaloreMemory, OfWholeModels) {
  const auto numbers = [](const GptConfig& model, int rank, const std::string& projection) {
    Count all = 0;
    for (const Parameter& parameter : whole_parameters(model))
      for (const MatrixState& state : matrix_states_of(galore(rank, projection), parameter))
        all += state.rows * state.columns;
    return all;
  };
  const GptConfig nano = gpt_config("nano"), small = gpt_config("small");
  EXPECT_EQ(numbers(nano, 32, "std"), 458'752);
  EXPECT_EQ(numbers(nano, 32, "reverse_std"), 327'680);
  EXPECT_EQ(numbers(small, 64, "std"), 4'128'768);
  EXPECT_EQ(numbers(small, 64, "reverse_std"), 2'949'120);
  EXPECT_EQ(Galore::largest_rank(whole_parameters(nano)), 128);
}

TEST(GaloreSteps, AreRefusedWithoutTheirMatrices) {
  OneMatrix one(4, 5, galore(2, "std"));
  EXPECT_THROW(one.optimizer->step(rate, 1), Error);
  one.matrices->step({one.optimizer.get()}, rate, 1);
  EXPECT_NO_THROW(one.optimizer->step(rate, 1));
}

}  // namespace
}  // namespace lockstep
