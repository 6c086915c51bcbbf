// A layer with experts against formulas that know nothing of rows and their order, and a model with
// experts against finite differences. New memory holds NaNs.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <numbers>

#include "collectives/base/device.h"
#include "models/gpt/gpt.h"
#include "models/gpt/weights.h"
#include "models/layers/mixture.h"
#include "models/layers/whole_layers.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

using enum RouterWeights;

class Poisoned : public testing::Test {
 protected:
  // With one thread: the layers are too small for more.
  Poisoned() : threads_(omp_get_max_threads()) {
    poison_host_memory(true);
    omp_set_num_threads(1);
  }
  ~Poisoned() override {
    poison_host_memory(false);
    omp_set_num_threads(threads_);
  }

 private:
  int threads_;
};

constexpr Count model_width = 3, few_tokens = 5;

GptConfig config_of(const ExpertConfig& experts, int width = model_width) {
  return {
      .layers = 2, .heads = 1, .width = width, .context = 8, .vocabulary = 7, .experts = experts};
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

using Row = std::array<double, model_width>;

// A layer with experts, alone.
struct Layer {
  explicit Layer(const ExpertConfig& experts)
      : config(config_of(experts)),
        parameters(DType::f64, ledger),
        mixture(whole_layers(), parameters, "", config, Masks({}, {}), 1) {
    parameters.allocate();
    const std::vector<double> values = normals(parameters.count(), 3);
    std::ranges::copy(values, host_span<double>(parameters.values()).begin());
  }

  double at(const std::string& name, Count i) const {
    return host_span<double>(parameters.value(parameters.index(name)))[static_cast<std::size_t>(i)];
  }
  void set(const std::string& name, Count i, double value) {
    host_span<double>(parameters.value(parameters.index(name)))[static_cast<std::size_t>(i)] =
        value;
  }
  std::vector<double> forward(const std::vector<double>& x, std::vector<double> base) {
    const Slice input = mixture.input(kept, rows, ledger);
    std::ranges::copy(x, host_span<double>(input).begin());
    std::vector<double> out(base.size());
    mixture.forward(host_backend(), slice(out), slice(base), kept, rows, ledger);
    return out;
  }

  Row expert(const std::string& name, const Row& x) const {
    Row out{};
    const Count hidden = parameters.list()[parameters.index(name + "c_fc.bias")].count;
    for (Count c = 0; c < model_width; ++c) out[c] = at(name + "c_proj.bias", c);
    for (Count h = 0; h < hidden; ++h) {
      double sum = at(name + "c_fc.bias", h);
      for (Count c = 0; c < model_width; ++c)
        sum += x[c] * at(name + "c_fc.weight", c * hidden + h);
      for (Count c = 0; c < model_width; ++c)
        out[c] += gelu(sum) * at(name + "c_proj.weight", h * model_width + c);
    }
    return out;
  }
  // By the definition: every expert computes every token, and a mask chooses.
  Row by_definition(const Row& x, const Row& base) const {
    const ExpertConfig& e = config.experts;
    std::vector<double> scores(static_cast<std::size_t>(e.number)), affinity = scores;
    double all = 0;
    for (int i = 0; i < e.number; ++i) {
      for (Count c = 0; c < model_width; ++c)
        scores[i] += x[c] * at("router.weight", c * e.number + i);
      all += std::exp(scores[i]);
    }
    for (int i = 0; i < e.number; ++i)
      affinity[i] =
          e.router == sigmoid ? 1 / (1 + std::exp(-scores[i])) : std::exp(scores[i]) / all;
    const auto is_chosen = [&](int i) {
      int better = 0;
      for (int j = 0; j < e.number; ++j)
        better += scores[j] > scores[i] || (scores[j] == scores[i] && j < i) ? 1 : 0;
      return better < e.per_token;
    };
    double sum = 0;
    for (int i = 0; i < e.number; ++i) sum += is_chosen(i) ? affinity[i] : 0;
    Row out = base;
    for (int i = 0; i < e.number; ++i) {
      const Row made = expert("experts." + std::to_string(i) + ".", x);
      const double weight = affinity[i] / (e.router == softmax_unnormalized ? 1 : sum);
      for (Count c = 0; c < model_width; ++c) out[c] += is_chosen(i) ? weight * made[c] : 0;
    }
    if (e.shared == 0) return out;
    const Row made = expert("shared.", x);
    for (Count c = 0; c < model_width; ++c) out[c] += made[c];
    return out;
  }
  void expect_by_definition() {
    const std::vector<double> x = normals(few_tokens * model_width, 8),
                              base = normals(few_tokens * model_width, 9);
    const std::vector<double> out = forward(x, base);
    for (Count t = 0; t < few_tokens; ++t) {
      Row own{}, of_base{};
      std::copy_n(x.begin() + t * model_width, model_width, own.begin());
      std::copy_n(base.begin() + t * model_width, model_width, of_base.begin());
      const Row expected = by_definition(own, of_base);
      for (Count c = 0; c < model_width; ++c)
        EXPECT_NEAR(out[t * model_width + c], expected[c], 1e-12) << t;
    }
  }

  const Rows rows{.sequences = 1, .length = few_tokens};
  Ledger ledger;
  GptConfig config;
  Parameters parameters;
  Mixture mixture;
  MlpStash kept;
};

class MixtureLayer : public Poisoned {};

TEST_F(MixtureLayer, IsWhatItsDefinitionSays) {
  for (const RouterWeights router : {softmax, softmax_unnormalized, sigmoid})
    for (const int per_token : {1, 2, 4})  // 4 of 4: a weighted sum of all
      for (const int shared : {0, 2}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(router) << " " << per_token << " of 4, shared " << shared);
        Layer({.number = 4, .per_token = per_token, .width = 2, .shared = shared, .router = router})
            .expect_by_definition();
      }
}

TEST_F(MixtureLayer, ExactTiesGoToTheFirstExperts) {
  Layer layer({.number = 3, .per_token = 2, .width = 2});
  for (Count i = 0; i < model_width * 3; ++i) layer.set("router.weight", i, 0);
  layer.expect_by_definition();
  EXPECT_EQ(layer.kept.routing.counts, (std::vector<Count>{few_tokens, few_tokens, 0}));
}

TEST_F(MixtureLayer, AllTokensMayGoToOneExpert) {
  Layer layer({.number = 3, .per_token = 1, .width = 2});
  const std::vector<double> x(static_cast<std::size_t>(few_tokens * model_width), 1.0);
  for (Count c = 0; c < model_width; ++c)
    for (Count e = 0; e < 3; ++e) layer.set("router.weight", c * 3 + e, e == 1 ? 5 : 0);
  const std::vector<double> out = layer.forward(x, x);
  EXPECT_EQ(layer.kept.routing.counts, (std::vector<Count>{0, few_tokens, 0}));
  for (const double number : out) EXPECT_TRUE(std::isfinite(number));
}

TEST_F(MixtureLayer, ADroppedTokenPassesByItsExperts) {
  Layer layer({.number = 3, .per_token = 1, .width = 2, .capacity = 1.5});
  const std::vector<double> x(static_cast<std::size_t>(few_tokens * model_width), 1.0),
      base = normals(few_tokens * model_width, 9);
  const std::vector<double> out = layer.forward(x, base);
  const auto of = [](const std::vector<double>& all, Count token) {
    return std::vector(all.begin() + token * model_width, all.begin() + (token + 1) * model_width);
  };
  EXPECT_EQ(std::ssize(layer.kept.routing.tokens),
            3);  // all choose one expert, which takes ceil(2.5)
  for (const Count token : {0, 1, 2}) EXPECT_NE(of(out, token), of(base, token));
  for (const Count token : {3, 4}) EXPECT_EQ(of(out, token), of(base, token));
}

TEST_F(MixtureLayer, KeepsItsChoiceWhenItIsComputedAgain) {
  Layer layer({.number = 4, .per_token = 2, .width = 2});
  const std::vector<double> x = normals(few_tokens * model_width, 8);
  layer.forward(x, x);
  const Routing first = layer.kept.routing;
  // Scores that would choose otherwise.
  for (Count i = 0; i < model_width * 4; ++i)
    layer.set("router.weight", i, static_cast<double>(-i));
  Rows again = layer.rows;
  again.again = true;
  std::vector<double> out(x.size()), base = x;
  layer.mixture.forward(host_backend(), slice(out), slice(base), layer.kept, again, layer.ledger);
  EXPECT_EQ(layer.kept.routing.experts, first.experts);
  EXPECT_EQ(layer.kept.routing.weights, first.weights);
  layer.forward(x, x);
  EXPECT_NE(layer.kept.routing.experts, first.experts);
}

// A third of the elements of every parameter of a small model, with dropout and balancing loss.
struct ModelCase {
  ExpertConfig experts;
  double dropout = 0;
};
void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.experts.per_token << " of " << c.experts.number << " " << name_of(c.experts.router);
}

class ModelWithExperts : public Poisoned, public testing::WithParamInterface<ModelCase> {};

TEST_P(ModelWithExperts, GradientsEqualFiniteDifferences) {
  const auto& [experts, dropout] = GetParam();
  Ledger ledger;
  Gpt model(config_of(experts, 8), host_backend(), DType::f64, ledger, true,
            {.dropout = {.rate = dropout}, .recompute = Recompute::full});
  model.initialize(1);
  const auto values = host_span<double>(model.parameters().values());
  for (double& value : values) value *= 10;
  const Batch batch{.inputs = {1, 5, 2, 0, 3, 3, 6, 4},
                    .targets = {5, 2, 0, 4, 3, 6, 4, 1},
                    .sequences = 2,
                    .length = 4,
                    .global_batch = 2,
                    .step = 0};
  const auto loss = [&] {
    const double cross_entropy = model.forward_backward(batch, 8);
    const RoutingTotals routing = model.take_routing();
    Count rows = 0;
    for (const auto& [layer, counts] : routing.tokens)
      for (const Count count : counts) rows += count;
    EXPECT_EQ(rows + routing.dropped, 8 * experts.per_token * std::ssize(routing.tokens));
    EXPECT_EQ(routing.dropped > 0, experts.capacity > 0);
    return cross_entropy + experts.balance * routing.balance / 2;
  };
  model.parameters().zero_gradients();
  loss();
  const auto all = host_span<double>(model.parameters().gradients());
  const std::vector<double> gradients(all.begin(), all.end());
  int compared = 0;
  for (std::size_t i = 0; i < gradients.size(); i += 3) {
    const auto moved = [&](double by) {
      const double before = std::exchange(values[i], values[i] + by), there = loss();
      values[i] = before;
      return there;
    };
    constexpr double step = 3e-5;
    const double difference =
        (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step);
    ASSERT_NEAR(gradients[i], difference, 1e-8 + 1e-7 * std::abs(difference)) << i;
    compared += gradients[i] != 0 ? 1 : 0;
  }
  EXPECT_GT(compared, std::ssize(gradients) / 6);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, ModelWithExperts,
    testing::Values(ModelCase{{.number = 3, .per_token = 2, .every = 2, .width = 4}},
                    ModelCase{{.number = 3,
                               .per_token = 1,
                               .width = 2,
                               .shared = 1,
                               .router = softmax_unnormalized,
                               .balance = 0.5},
                              0.2},
                    ModelCase{{.number = 4,
                               .per_token = 2,
                               .width = 2,
                               .shared = 2,
                               .router = sigmoid,
                               .balance = 2}},
                    // The last tokens of the experts that most chose are dropped.
                    ModelCase{{.number = 3,
                               .per_token = 2,
                               .width = 2,
                               .balance = 0.5,
                               .capacity = 0.75,
                               .drops_by_position = true}}));

}  // namespace
}  // namespace lockstep
