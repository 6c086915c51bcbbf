// Routers: their choices, weights, losses and gradients, for numbers that were computed elsewhere and
// against finite differences.
#include "models/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "collectives/base/error.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

using enum RouterWeights;

ExpertConfig experts(int number, int per_token, RouterWeights router) {
  return {.number = number, .per_token = per_token, .width = 1, .router = router, .balance = 1};
}

const std::vector<double> four = {2, 1, 0, -1};

TEST(Routing, WeightsOfTwoOfFour) {
  const auto weights = [](RouterWeights router) {
    return Router(experts(4, 2, router)).choose(four, 1).weights;
  };
  expect_near(weights(softmax), std::vector{.731059, .268941}, 1e-6);
  expect_near(weights(softmax_unnormalized), std::vector{.643914, .236883}, 1e-6);
  expect_near(weights(sigmoid), std::vector{.546449, .453551}, 1e-6);
}

TEST(Routing, BalancingLossOfOneToken) {
  const auto loss_and_gradient = [](RouterWeights router) {
    const Router one(experts(4, 2, router));
    const Routing routing = one.choose(four, 1);
    std::vector<double> gradient(4);
    one.backward(gradient, four, std::vector<double>(2), routing, 1, 1);
    gradient.push_back(routing.balance);
    return gradient;
  };
  expect_near(loss_and_gradient(softmax),
              std::vector{.153513, .056474, -.153513, -.056474, 1.7615941560}, 1e-6);
  expect_near(loss_and_gradient(sigmoid),
              std::vector{.028487, .053344, -.142184, -.111820, 1.3540470723}, 1e-6);
}

TEST(Routing, BalancedChoicesCostExactlyOne) {
  // Four tokens with equal scores but for the one that decides, each for another expert.
  std::vector<double> scores(16, 0);
  for (int t = 0; t < 4; ++t) scores[5 * t] = 1;
  EXPECT_NEAR(Router(experts(4, 1, softmax)).choose(scores, 1).balance, 1, 1e-15);
}

TEST(Routing, OfEqualScoresTheSmallerIndexIsChosen) {
  const Router router(experts(5, 3, softmax));
  const Routing routing = router.choose(std::vector<double>{1, 2, 2, 1, 1, 0, 0, 0, 0, 0}, 1);
  EXPECT_EQ(routing.experts, (std::vector<std::int32_t>{1, 2, 0, 0, 1, 2}));
}

TEST(Routing, RowsLieByExpertAndThenByToken) {
  const Router router(experts(3, 2, softmax));
  // Experts {2, 0}, {0, 2}, {2, 0}: none for expert 1.
  const Routing routing = router.choose(std::vector<double>{1, 0, 2, 2, 0, 1, 1, 0, 2}, 1);
  EXPECT_EQ(routing.counts, (std::vector<Count>{3, 0, 3}));
  EXPECT_EQ(routing.tokens, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(routing.rows, (std::vector<std::int32_t>{3, 0, 1, 4, 5, 2}));
}

TEST(Routing, ZLossOfOneToken) {
  ExpertConfig config = experts(4, 2, softmax);
  config.balance = 0;
  config.z_loss = 1;
  const Router one(config);
  const Routing routing = one.choose(four, 1);
  EXPECT_NEAR(routing.z, 5.9545257650, 1e-9);
  std::vector<double> gradient(4);
  one.backward(gradient, four, std::vector<double>(2), routing, 1, 1);
  expect_near(gradient, std::vector{3.142546, 1.156078, .425297, .156458}, 1e-6);
}

TEST(Routing, TokensUseExpertsOfTheBestGroups) {
  ExpertConfig config = experts(6, 2, sigmoid);
  config.groups = 3;
  config.chosen_groups = 1;
  // Expert 0 is the best one, but the experts 2 and 3 are the best pair.
  EXPECT_EQ(Router(config).choose(std::vector<double>{3, -9, 2, 1, 0, 0}, 1).experts,
            (std::vector<std::int32_t>{2, 3}));
  // Of each of two groups, only the best expert counts.
  config.chosen_groups = 2;
  EXPECT_EQ(Router(config).choose(std::vector<double>{3, -9, 1, 1, 2, -9}, 1).experts,
            (std::vector<std::int32_t>{0, 4}));
}

ExpertConfig with_bias(ExpertConfig config) {
  config.bias_rate = 0.25;
  return config;
}

TEST(Routing, ABiasDecidesAndIsNoPartOfTheWeights) {
  Router router(with_bias(experts(4, 2, sigmoid)));
  EXPECT_EQ(router.choose(four, 1).experts, (std::vector<std::int32_t>{0, 1}));
  router.set_bias({0, 0, .3, 0});
  const Routing routing = router.choose(four, 1);
  EXPECT_EQ(routing.experts, (std::vector<std::int32_t>{0, 2}));
  expect_near(routing.weights, std::vector{.637890, .362110}, 1e-6);
  // Added to probabilities, not to scores: the fourth one is 0.032.
  Router of_all(with_bias(experts(4, 1, softmax)));
  of_all.set_bias({0, 0, 0, .612});
  EXPECT_EQ(of_all.choose(four, 1).experts.front(), 3);
  of_all.set_bias({0, 0, 0, .611});
  EXPECT_EQ(of_all.choose(four, 1).experts.front(), 0);
  EXPECT_THROW(router.set_bias({0, 0, 0}), Error);
}

TEST(Routing, GroupsAreChosenWithTheirBiases) {
  ExpertConfig config = with_bias(experts(4, 1, sigmoid));
  config.groups = 2;
  Router router(config);
  EXPECT_EQ(router.choose(four, 1).experts.front(), 0);
  router.set_bias({0, 0, 0, .7});  // .968 is the best of all, .881 of the first group
  EXPECT_EQ(router.choose(four, 1).experts.front(), 3);
}

TEST(Routing, ABiasGoesUpForExpertsThatAreChosenTooLittle) {
  Router router(with_bias(experts(4, 2, softmax)));
  const auto biases = [&] { return std::vector(router.bias().begin(), router.bias().end()); };
  router.balance(std::vector<double>{3, 1, 2, 2});
  EXPECT_EQ(biases(), (std::vector{-.25, .25, 0., 0.}));
  router.balance(std::vector<double>{5, 1, 1, 1});
  EXPECT_EQ(biases(), (std::vector{-.5, .5, .25, .25}));
  EXPECT_TRUE(Router(experts(4, 2, softmax)).bias().empty());
}

// Numbers of Python's math.log.
TEST(Routing, EntropyOfOneToken) {
  const auto entropy = [](RouterWeights router) {
    return Router(experts(4, 2, router)).choose(four, 1).entropy;
  };
  EXPECT_NEAR(entropy(softmax), 0.9475369639754255, 1e-14);
  EXPECT_NEAR(entropy(softmax_unnormalized), 0.9475369639754255, 1e-14);
  EXPECT_NEAR(entropy(sigmoid), 1.304505145760852, 1e-14);
  // A probability may be zero.
  EXPECT_EQ(Router(experts(2, 1, softmax)).choose(std::vector{0., 2000.}, 1).entropy, 0);
}

TEST(Routing, ExpertsTakeAsManyTokensAsTheirCapacity) {
  ExpertConfig config = experts(4, 1, softmax_unnormalized);
  EXPECT_EQ(config.capacity_of(10), 10);
  config.capacity = 1;
  EXPECT_EQ(config.capacity_of(10), 3);  // 2.5 is the mean
  // All five tokens choose expert 1, the later the more.
  std::vector<double> scores(20, 0);
  for (int t = 0; t < 5; ++t) scores[4 * t + 1] = t + 1;
  config.capacity = 1.5;  // two tokens
  EXPECT_EQ(Router(config).choose(scores, 1).rows, (std::vector<std::int32_t>{-1, -1, -1, 0, 1}));
  config.drops_by_position = true;
  const Routing routing = Router(config).choose(scores, 1);
  EXPECT_EQ(routing.rows, (std::vector<std::int32_t>{0, 1, -1, -1, -1}));
  EXPECT_EQ(routing.tokens, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(routing.counts, (std::vector<Count>{0, 2, 0, 0}));
  EXPECT_EQ(routing.choices, (std::vector<Count>{0, 5, 0, 0}));
  RoutingTotals totals;
  totals.add(0, routing);
  EXPECT_EQ(totals.dropped, 3);
  EXPECT_EQ(totals.chosen, 5);
}

// Memory is for so many rows, so the bound is counted here by hand.
TEST(Routing, BoundsTheRowsOfSomeExperts) {
  ExpertConfig config{.number = 8, .per_token = 2};
  EXPECT_EQ(config.most_rows(10), 20);
  EXPECT_EQ(config.most_rows(10, 4), 20);
  EXPECT_EQ(config.most_rows(10, 1), 10);  // a token chooses an expert once
  // The capacity of each is 3 rows, and four ranks have two experts each.
  config.capacity = 1;
  EXPECT_EQ(config.most_rows(10, 2), 6);
  EXPECT_EQ(config.most_rows(ExpertSplit{.ranks = 4, .most_tokens = 10}), 24);
  EXPECT_EQ(config.most_rows(10), 20);
}

TEST(Routing, WithoutScoresAllAreChosenInTurn) {
  const Routing routing = Router(experts(4, 3, sigmoid)).choose_as_assumed(8, 1);
  EXPECT_EQ(routing.counts, (std::vector<Count>{6, 6, 6, 6}));
  EXPECT_EQ(std::ssize(routing.weights), 24);
}

TEST(Routing, TotalsAddUpByLayer) {
  RoutingTotals totals, others;
  totals.add(1, {.counts = {1, 2}, .balance = 1});
  totals.add(1, {.counts = {3, 0}, .balance = 2});
  others.add(3, {.counts = {0, 4}, .balance = 4});
  totals.add(others);
  EXPECT_EQ(totals.balance, 7);
  EXPECT_EQ(totals.tokens.at(1), (std::vector<Count>{4, 2}));
  EXPECT_EQ(totals.tokens.at(3), (std::vector<Count>{0, 4}));
}

struct RouterCase {
  int number, per_token;
  RouterWeights router;
  int groups = 1;
  bool has_bias = false;
};
void PrintTo(const RouterCase& c, std::ostream* out) {
  *out << c.per_token << " of " << c.number << " " << name_of(c.router);
}

class RouterGradients : public testing::TestWithParam<RouterCase> {};

// The sum of given products by the weights, three times the balancing loss of each sequence, and twice
// the mean z-loss of each.
TEST_P(RouterGradients, EqualFiniteDifferences) {
  const auto [number, per_token, kind, groups, has_bias] = GetParam();
  ExpertConfig config = experts(number, per_token, kind);
  config.balance = 3;
  config.z_loss = 2;
  config.groups = groups;
  config.bias = has_bias;
  Router router(config);
  if (has_bias) router.set_bias(normals(number, 7));
  constexpr Count sequences = 2, tokens = 6;
  std::vector<double> scores = normals(tokens * number, 5);
  const std::vector<double> products = normals(tokens * per_token, 6);
  const auto loss = [&] {
    const Routing routing = router.choose(scores, sequences);
    return std::inner_product(products.begin(), products.end(), routing.weights.begin(), 0.0) +
           3 * routing.balance + 2 * routing.z * sequences / tokens;
  };
  std::vector<double> gradient(scores.size(), std::nan(""));
  router.backward(gradient, scores, products, router.choose(scores, sequences), sequences, 1);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    constexpr double step = 1e-6;
    const double before = std::exchange(scores[i], scores[i] + step), up = loss();
    scores[i] = before - step;
    const double down = loss();
    scores[i] = before;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RouterGradients,
    testing::Values(RouterCase{4, 2, softmax}, RouterCase{4, 2, softmax_unnormalized},
                    RouterCase{4, 2, sigmoid}, RouterCase{5, 1, softmax_unnormalized},
                    RouterCase{5, 1, sigmoid}, RouterCase{3, 3, softmax},
                    RouterCase{3, 3, softmax_unnormalized}, RouterCase{3, 3, sigmoid},
                    RouterCase{6, 2, sigmoid, 3}, RouterCase{6, 2, sigmoid, 3, true},
                    RouterCase{5, 2, softmax, 1, true},
                    RouterCase{5, 2, softmax_unnormalized, 1, true}, RouterCase{1, 1, softmax}));

// One expert for each token has the weight 1, whatever its score: only the balancing loss teaches
// such a router.
TEST(Routing, OneNormalizedWeightHasNoGradient) {
  const Router router(experts(3, 1, softmax));
  std::vector<double> gradient(3);
  const std::vector<double> scores = {0.5, 0.25, 1};
  router.backward(gradient, scores, std::vector{7.0}, router.choose(scores, 1), 1, 0);
  EXPECT_EQ(gradient, std::vector<double>(3));
}

}  // namespace
}  // namespace lockstep
