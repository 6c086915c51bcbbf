// Balancing losses of micro-batches and of the global batch: values by hand, gradients against finite
// differences.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "models/routing.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

using enum RouterWeights;

ExpertConfig at_level(BalanceLevel level, RouterWeights router, int number, int per_token) {
  return {.number = number,
          .per_token = per_token,
          .width = 1,
          .router = router,
          .balance = 1,
          .balance_level = level};
}

// Two sequences of one token, each with another expert: alone they are as unbalanced as can be, and
// together they are balanced.
TEST(BalanceLevels, OfAMicroBatchOppositesCancel) {
  const std::vector<double> scores = {1, 0, 0, 1};
  const double p = 1 / (1 + std::exp(-1));
  const auto loss = [&](BalanceLevel level) {
    return Router(at_level(level, softmax, 2, 1)).choose(scores, 2).balance;
  };
  EXPECT_NEAR(loss(BalanceLevel::sequence), 2 * (2 * p), 1e-15);
  EXPECT_NEAR(loss(BalanceLevel::micro_batch), 2 * 1, 1e-15);
}

// Three tokens choose the first expert and one the second, in two micro-batches on two ranks.
TEST(BalanceLevels, OfTheGlobalBatchIsASumOverRanks) {
  const double p = 1 / (1 + std::exp(-1)), q = 1 - p;
  Router router(at_level(BalanceLevel::global_batch, softmax, 2, 1));
  const Routing here = router.choose(std::vector<double>{1, 0, 0, 1}, 1),
                there = router.choose(std::vector<double>{1, 0, 1, 0}, 1);
  expect_near(here.probabilities, std::vector{1., 1.}, 1e-15);
  expect_near(there.probabilities, std::vector{2 * p, 2 * q}, 1e-15);
  RoutingTotals totals;
  totals.add(0, here);
  totals.add(0, there);
  EXPECT_EQ(totals.balance, 0);
  EXPECT_EQ(totals.choices.at(0), (std::vector<Count>{3, 1}));
  expect_near(totals.probabilities.at(0), std::vector{1 + 2 * p, 1 + 2 * q}, 1e-15);
  const std::vector<double> choices = {3, 1};
  const double first = router.share_choices(choices, here.probabilities),
               second = router.share_choices(choices, there.probabilities);
  EXPECT_NEAR(first, (0.75 + 0.25) / 4, 1e-15);
  EXPECT_NEAR(first + second, 0.75 * (1 + 2 * p) / 4 + 0.25 * (1 + 2 * q) / 4, 1e-15);
}

struct LevelCase {
  BalanceLevel level;
  RouterWeights router;
};
void PrintTo(const LevelCase& c, std::ostream* out) {
  *out << name_of(c.router) << static_cast<int>(c.level);
}
class BalanceGradients : public testing::TestWithParam<LevelCase> {};

// Two micro-batches, of one and of two sequences with three tokens each. The test
// differentiates the reported loss: three times the mean over the sequences of each micro-batch.
TEST_P(BalanceGradients, EqualFiniteDifferences) {
  const auto [level, kind] = GetParam();
  constexpr int number = 5, per_token = 2;
  ExpertConfig config = at_level(level, kind, number, per_token);
  config.balance = 3;
  Router router(config);
  std::vector<std::vector<double>> scores = {normals(3 * number, 5), normals(6 * number, 6)};
  const auto loss = [&] {
    RoutingTotals all;
    for (const std::vector<double>& own : scores)
      all.add(0, router.choose(own, std::ssize(own) / (3 * number)));
    if (config.balance_level == BalanceLevel::global_batch) {
      const std::vector<Count>& counts = all.choices.at(0);
      const std::vector<double> choices(counts.begin(), counts.end());
      all.balance = number * 3 * router.share_choices(choices, all.probabilities.at(0));
    }
    return 3 * all.balance / 3;
  };
  loss();  // shares the choices
  for (std::vector<double>& own : scores) {
    const Count sequences = std::ssize(own) / (3 * number);
    std::vector<double> gradient(own.size());
    router.backward(gradient, own, std::vector<double>(own.size() / number * per_token),
                    router.choose(own, sequences), sequences, 1.0 / 3);
    for (std::size_t i = 0; i < own.size(); ++i) {
      constexpr double step = 1e-6;
      const double before = std::exchange(own[i], own[i] + step), up = loss();
      own[i] = before - step;
      const double down = loss();
      own[i] = before;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BalanceGradients,
                         testing::Values(LevelCase{BalanceLevel::micro_batch, softmax},
                                         LevelCase{BalanceLevel::micro_batch, softmax_unnormalized},
                                         LevelCase{BalanceLevel::micro_batch, sigmoid},
                                         LevelCase{BalanceLevel::global_batch, softmax},
                                         LevelCase{BalanceLevel::global_batch,
                                                   softmax_unnormalized},
                                         LevelCase{BalanceLevel::global_batch, sigmoid}));

}  // namespace
}  // namespace lockstep
