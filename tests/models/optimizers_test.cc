// Optimizers against their formulas in double, and what holds for all of them.
#include "models/optimizers/whole_matrices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "collectives/base/error.h"
#include "collectives/base/half.h"
#include "models/ops/narrow_backend.h"

namespace lockstep {

void PrintTo(const OptimizerSettings& settings, std::ostream* out) { *out << settings.name; }

namespace {

// Every optimizer, with each number of states that it may have.
std::vector<OptimizerSettings> all_optimizers() {
  std::vector<OptimizerSettings> all;
  for (const std::string& name : optimizer_names()) all.push_back({.name = name});
  all.push_back({.name = "sgd", .momentum = 0});
  return all;
}

class Optimizers : public testing::TestWithParam<OptimizerSettings> {};
INSTANTIATE_TEST_SUITE_P(, Optimizers, testing::ValuesIn(all_optimizers()),
                         [](const auto& test_info) {
                           return test_info.param.name +
                                  std::to_string(states_of(test_info.param).size());
                         });

// Cut anywhere, even inside a parameter, the parts take the same steps as the whole.
TEST_P(Optimizers, PartsTakeTheSameStepsAsTheWhole) {
  Ledger ledger;
  constexpr Count count = 7 + 30 + 5;
  const auto make = [&](Parameters& parameters) {
    parameters.add({.name = "bias", .shape = {7}});
    parameters.add({.name = "matrix", .shape = {6, 5}});
    parameters.add({.name = "norm", .shape = {5}});
    parameters.allocate();
    for (Count i = 0; i < count; ++i) {
      host_span<double>(parameters.values())[i] = 1 + 0.1 * static_cast<double>(i);
      host_span<double>(parameters.gradients())[i] = 0.01 * static_cast<double>(i) - 0.2;
    }
  };
  Parameters whole(DType::f64, ledger), cut(DType::f64, ledger);
  make(whole);
  make(cut);
  OptimizerSettings settings = GetParam();
  settings.weight_decay = 0.5;
  const auto all = new_optimizer(settings, whole, host_backend(), ledger);
  std::vector<std::unique_ptr<Optimizer>> parts;
  const Parts part(count, 4);
  for (int i = 0; i < 4; ++i)
    parts.push_back(new_optimizer(
        settings, cut.list(), part.offset(i), cut.values().part(part.offset(i), part[i]),
        cut.gradients().part(part.offset(i), part[i]), host_backend(), ledger));
  for (int step = 0; step < 3; ++step) {
    all->step(0.1, 0.5);
    for (const auto& one : parts) one->step(0.1, 0.5);
  }
  for (Count i = 0; i < count; ++i) {
    EXPECT_EQ(host_span<double>(cut.values())[i], host_span<double>(whole.values())[i]) << i;
    EXPECT_NE(host_span<double>(whole.values())[i], 1 + 0.1 * static_cast<double>(i)) << i;
  }
}

// The whole state, read from one optimizer and written to another, continues with the same bits. Its
// bytes are those that the formula says.
TEST_P(Optimizers, StatesCanBeReadAndChanged) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Ledger ledger;
    NarrowBackend backend(host_backend(), ledger);
    Parameters source(dtype, ledger), target(dtype, ledger);
    for (Parameters* parameters : {&source, &target}) {
      parameters->add({.name = "matrix", .shape = {5, 4}});
      parameters->allocate();
      for (const Slice flat : {parameters->values(), parameters->gradients()}) {
        std::vector<double> numbers;
        for (Count i = 0; i < flat.count; ++i) numbers.push_back(0.1 * static_cast<double>(i) - 1);
        convert(flat, host_slice(std::span(numbers)));
      }
    }
    const auto from = new_optimizer(GetParam(), source, backend, ledger);
    EXPECT_EQ(ledger.bytes(MemoryUse::optimizer),
              20 * optimizer_bytes(GetParam(), dtype, Parameter{}));
    const auto into = new_optimizer(GetParam(), target, backend, ledger);
    // Masters begin as the values.
    from->visit(StateAccess::read, [&](const StateGroup& group) {
      EXPECT_EQ(group.states.size(), states_of(GetParam(), Parameter{}).size());
      EXPECT_EQ(group.master.device != nullptr, is_narrow(dtype));
      for (Count i = 0; i < group.master.count; ++i)
        EXPECT_EQ(host_span<float>(group.master)[i],
                  to_float(host_span<BFloat16>(group.values)[i]));
    });
    from->step(0.01, 0.5);
    from->step(0.01, 0.5);
    std::vector<StateGroup> groups;
    from->visit(StateAccess::read, [&](const StateGroup& group) { groups.push_back(group); });
    into->visit(StateAccess::change, [&](const StateGroup& group) {
      const StateGroup& other = groups.front();
      EXPECT_EQ(group.range, other.range);
      host_device().copy(group.values, other.values);
      if (group.master.device) host_device().copy(group.master, other.master);
      for (std::size_t i = 0; i < group.states.size(); ++i)
        host_device().copy(group.states[i], other.states[i]);
    });
    into->set_steps(from->steps());
    from->step(0.01, 0.5);
    into->step(0.01, 0.5);
    EXPECT_EQ(std::memcmp(source.values().data, target.values().data,
                          static_cast<std::size_t>(source.values().bytes())),
              0)
        << name_of(dtype);
  }
}

// A matrix, whose values decay, and a vector.
struct Two {
  Ledger ledger;
  Parameters parameters{DType::f64, ledger};
  std::span<double> values, gradients;

  Two() {
    parameters.add({.name = "matrix", .shape = {1, 2}});
    parameters.add({.name = "vector", .shape = {2}});
    parameters.allocate();
    values = host_span<double>(parameters.values());
    gradients = host_span<double>(parameters.gradients());
    std::ranges::fill(values, 2.0);
  }
};

TEST(AdamW, FirstStepsEqualTheAlgorithmWrittenOut) {
  Two two;
  const auto optimizer =
      new_optimizer({.weight_decay = 0.5, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, two.parameters,
                    host_backend(), two.ledger);
  double m = 0, v = 0, decayed = 2, plain = 2;
  for (int t = 1; t <= 3; ++t) {
    std::ranges::fill(two.gradients, 0.4 * t);
    optimizer->step(0.1, 0.5);
    const double g = 0.2 * t;
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const double update =
        0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
    decayed = decayed - 0.1 * 0.5 * decayed - update;
    plain -= update;
    EXPECT_NEAR(two.values[0], decayed, 1e-14);
    EXPECT_NEAR(two.values[3], plain, 1e-14);
  }
}

// As torch.optim.SGD, whose first momentum is the gradient.
TEST(Sgd, FirstStepsEqualTheAlgorithmWrittenOut) {
  for (const double momentum : {0.9, 0.0}) {
    Two two;
    const auto optimizer = new_optimizer({.name = "sgd", .weight_decay = 0.5, .momentum = momentum},
                                         two.parameters, host_backend(), two.ledger);
    double decayed = 2, plain = 2, of_decayed = 0, of_plain = 0;
    for (int t = 1; t <= 3; ++t) {
      std::ranges::fill(two.gradients, 0.4 * t);
      optimizer->step(0.1, 0.5);
      of_decayed = momentum * of_decayed + 0.2 * t + 0.5 * decayed;
      of_plain = momentum * of_plain + 0.2 * t;
      decayed -= 0.1 * of_decayed;
      plain -= 0.1 * of_plain;
      EXPECT_NEAR(two.values[0], decayed, 1e-14) << momentum;
      EXPECT_NEAR(two.values[3], plain, 1e-14) << momentum;
    }
  }
}

TEST(OptimizerBytes, AreThoseOfTheirFormulas) {
  const OptimizerSettings plain{.name = "sgd", .momentum = 0};
  EXPECT_EQ(optimizer_bytes({}, DType::f32, Parameter{}), 8);
  EXPECT_EQ(optimizer_bytes({}, DType::bf16, Parameter{}), 12);
  EXPECT_EQ(optimizer_bytes({.name = "sgd"}, DType::f64, Parameter{}), 8);
  EXPECT_EQ(optimizer_bytes({.name = "sgd"}, DType::f16, Parameter{}), 8);
  EXPECT_EQ(optimizer_bytes(plain, DType::f32, Parameter{}), 0);
  EXPECT_EQ(optimizer_bytes(plain, DType::bf16, Parameter{}), 4);
  EXPECT_EQ(optimizer_formula({}, DType::f32, "Psi"), "2 * Psi * beta");
  EXPECT_EQ(optimizer_formula({}, DType::bf16, "Psi/P"), "12 * Psi/P");
  EXPECT_EQ(optimizer_formula({.name = "sgd"}, DType::f32, "Psi"), "Psi * beta");
  EXPECT_EQ(optimizer_formula(plain, DType::f32, "Psi"), "0");
}

// A hidden matrix whose step was left out would never change.
TEST(Muon, RefusesAStepWithoutItsMatrices) {
  Ledger ledger;
  Parameters parameters(DType::f64, ledger);
  parameters.add({.name = "matrix", .shape = {3, 2}, .hidden = {3, {2}}});
  parameters.add({.name = "vector", .shape = {2}});
  parameters.allocate();
  const OptimizerSettings settings{.name = "muon"};
  const auto optimizer = new_optimizer(settings, parameters, host_backend(), ledger);
  EXPECT_THROW(optimizer->step(0.1, 1), Error);
  WholeMatrices matrices(settings, parameters, host_backend(), ledger);
  matrices.step({optimizer.get()}, 0.1, 1);
  EXPECT_NO_THROW(optimizer->step(0.1, 1));
  EXPECT_THROW(optimizer->step(0.1, 1), Error);
}

}  // namespace
}  // namespace lockstep
