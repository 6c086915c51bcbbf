// What layers keep for their backward passes: a type of their own each, which blocks and stages
// only move around.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/error.h"
#include "models/gpt/gpt_stage.h"
#include "models/gpt/weights.h"

namespace lockstep {
namespace {

TEST(LayerStash, KeepsTheTypeOfItsLayer) {
  struct Numbers {
    std::vector<int> list;
  };
  struct Name {
    std::string text;
  };
  LayerStash stash;
  EXPECT_TRUE(stash.empty());
  EXPECT_THROW(std::as_const(stash).own<Numbers>(), Error);
  stash.own<Numbers>().list = {1, 2};
  LayerStash moved = std::move(stash);
  EXPECT_EQ(moved.own<Numbers>().list, (std::vector{1, 2}));  // not a new one
  EXPECT_THROW(std::as_const(moved).own<Name>(), Error);
  // A layer of another type takes the place.
  EXPECT_EQ(moved.own<Name>().text, "");
  EXPECT_THROW(std::as_const(moved).own<Numbers>(), Error);
}

// Two experts of one number for each column, and a router that looks at the first column: a layer that
// keeps more than tensors, and for its backward pass something else than a DenseMlp.
class RoutedMlp final : public Mlp {
 public:
  RoutedMlp(Parameters& parameters, int layer, Count width)
      : parameters_(parameters),
        width_(width),
        experts_(parameters.add({.name = "h." + std::to_string(layer) + ".mlp.experts",
                                 .shape = {2, width},
                                 .initial = Initial::normal})) {}

  Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const override {
    Tensor& x = kept.tensors.own<Kept>().x;
    ensure(x, {rows.count(), width_}, DType::f64, ledger, MemoryUse::activations);
    return x.slice();
  }
  void forward(Backend&, Slice out, Slice base, MlpStash& kept, const Rows& rows,
               Ledger&) const override {
    auto& [x, experts] = kept.tensors.own<Kept>();
    experts.clear();
    for (Count row = 0; row < rows.count(); ++row) {
      experts.push_back(x.data<double>()[row * width_] > 0 ? 1 : 0);
      for (Count i = 0; i < width_; ++i)
        number(out, row, i) =
            number(base, row, i) +
            number(parameters_.value(experts_), experts.back(), i) * number(x.slice(), row, i);
    }
  }
  void backward_input(Backend&, Slice dx, Slice dout, const MlpStash& kept, LayerStash& gradients,
                      const Rows& rows, Ledger&, const Meanwhile& meanwhile) const override {
    const auto& [x, experts] = kept.tensors.own<Kept>();
    auto& sums = gradients.own<ExpertGradients>().sums;
    sums.assign(static_cast<std::size_t>(2 * width_), 0);
    for (Count row = 0; row < rows.count(); ++row)
      for (Count i = 0; i < width_; ++i) {
        const Count expert = experts.at(static_cast<std::size_t>(row));
        sums.at(static_cast<std::size_t>(expert * width_ + i)) +=
            number(dout, row, i) * number(x.slice(), row, i);
        number(dx, row, i) = number(dout, row, i) * number(parameters_.value(experts_), expert, i);
      }
    run(meanwhile);
  }
  void backward_weight(Backend&, Slice, const MlpStash&, const LayerStash& gradients,
                       const Rows&) const override {
    const std::vector<double>& sums = gradients.own<ExpertGradients>().sums;
    for (Count i = 0; i < 2 * width_; ++i)
      number(parameters_.gradient(experts_), 0, i) += sums.at(static_cast<std::size_t>(i));
  }
  int last_parameter() const override { return experts_; }

 private:
  struct Kept {
    Tensor x;
    std::vector<Count> experts;  // of each row
  };
  struct ExpertGradients {
    std::vector<double> sums;
  };

  double& number(Slice slice, Count row, Count column) const {
    return reinterpret_cast<double*>(slice.data)[row * width_ + column];
  }

  Parameters& parameters_;
  Count width_;
  int experts_;
};

class RoutedLayers final : public WrappedLayers {
 public:
  RoutedLayers() : WrappedLayers(whole_layers()) {}
  std::unique_ptr<Mlp> mlp(Parameters& parameters, int layer, const GptConfig& config,
                           const MaskOptions&) const override {
    return std::make_unique<RoutedMlp>(parameters, layer, config.width);
  }
};

constexpr GptConfig routed{.layers = 3, .heads = 2, .width = 8, .context = 6, .vocabulary = 11};

// Two micro-batches, both in flight before the first goes back.
struct RoutedModel {
  explicit RoutedModel(Recompute recompute)
      : parameters(DType::f64, ledger),
        stage(parameters, routed, {.first = 0, .count = routed.layers}, host_backend(), ledger,
              {.recompute = recompute}, RoutedLayers()) {
    parameters.allocate();
    initialize_weights(parameters, parameters.list(), routed.layers, 3);
    // Values as large as trained ones, so that every branch matters.
    const auto values = host_span<double>(parameters.values());
    for (const Parameter& parameter : parameters.list())
      for (Count i = 0; parameter.decays() && i < parameter.count; ++i)
        values[static_cast<std::size_t>(parameter.offset + i)] *= 10;
  }

  static std::vector<std::int32_t> tokens(int micro_batch, int shift) {
    std::vector<std::int32_t> list;
    for (int i = 0; i < 12; ++i) list.push_back((i * 5 + 3 * micro_batch + shift) % 11);
    return list;
  }
  double run(bool in_two_pieces) {
    parameters.zero_gradients();
    double loss = 0;
    for (const int m : {0, 1})
      loss += stage.forward(stashes.at(m), {.sequences = 2, .length = 6, .step = 1}, tokens(m, 0),
                            {}, {}, Targets{tokens(m, 1)});
    for (const int m : {0, 1}) {
      if (!in_two_pieces) {
        stage.backward(stashes.at(m), tokens(m, 0), {}, {});
        continue;
      }
      stage.backward_input(stashes.at(m), {}, {});
      stage.backward_weight(stashes.at(m), tokens(m, 0));
    }
    return loss;
  }
  std::vector<double> gradients() {
    const auto all = host_span<double>(parameters.gradients());
    return {all.begin(), all.end()};
  }

  Ledger ledger;
  Parameters parameters;
  GptStage stage;
  std::array<StageStash, 2> stashes;
};

TEST(LayerStash, LetsARouterKeepItsChoice) {
  RoutedModel model(Recompute::none);
  model.run(false);
  const std::vector<double> gradients = model.gradients();
  const Count bytes = model.ledger.bytes(MemoryUse::activations);
  const auto values = host_span<double>(model.parameters.values());
  for (std::size_t i = 0; i < values.size(); i += 7) {
    constexpr double h = 1e-6;
    const double before = values[i];
    values[i] = before + h;
    const double above = model.run(false);
    values[i] = before - h;
    const double below = model.run(false);
    values[i] = before;
    ASSERT_NEAR(gradients[i], (above - below) / (2 * h), 1e-5) << i;
  }
  // Later steps use the memory of the first.
  EXPECT_EQ(model.ledger.bytes(MemoryUse::activations), bytes);
  EXPECT_EQ(model.ledger.peak_bytes(MemoryUse::activations), bytes);
}

TEST(LayerStash, OfARouterIsTheSameWithRecomputationAndInTwoPieces) {
  RoutedModel expected(Recompute::none);
  const double loss = expected.run(false);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const bool in_two_pieces : {false, true}) {
      if (in_two_pieces && recompute == Recompute::full) continue;
      RoutedModel model(recompute);
      EXPECT_EQ(model.run(in_two_pieces), loss);
      EXPECT_EQ(model.gradients(), expected.gradients());
    }
}

}  // namespace
}  // namespace lockstep
