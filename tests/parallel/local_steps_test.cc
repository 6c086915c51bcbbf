// Local steps: against replicas in plain loops, against DDP and averages of weights, and under every plan that takes them;
// what ranks send in each step of a window, what they hold, and what is refused.
#include "parallel/data/local_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/gpt/gpt.h"
#include "parallel/rank/first_weights.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<double>;

TrainOptions local_run(int steps_alone, const std::string& technique = "ddp") {
  TrainOptions options = test::golden_run(technique);
  options.local_steps = steps_alone;
  return options;
}

// Plain steps, as the papers write them.
TrainOptions plain(TrainOptions options) {
  options.optimizer = "sgd";
  options.momentum = 0;
  options.learning_rate = 0.05;
  options.grad_clip = 0;
  options.outer_learning_rate = 1;
  options.outer_momentum = 0;
  return options;
}

Numbers saved_weights(int ranks, TrainOptions options, TrainResult& result) {
  const test::Folder folder;
  options.save = folder.file("weights.safetensors");
  result = test::run(ranks, options);
  EXPECT_TRUE(theory_holds(result));
  return test::weights_of(options.save);
}

void expect_near(const Numbers& got, const Numbers& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
}

// One replica of the reference: a model of its own, with AdamW's or SGD's steps in plain loops.
class PlainReplica {
 public:
  PlainReplica(const Plan& plan, int rank)
      : plan_(plan),
        rank_(rank),
        dataset_(plan.options.data, plan.model.vocabulary, 0),
        model_(plan.model, host_backend(), DType::f64, ledger_) {
    FirstWeights(plan).set(model_.parameters());
    m_.resize(weights().size());
    v_.resize(weights().size());
  }

  std::span<double> weights() { return host_span<double>(model_.parameters().values()); }
  std::span<double> weights() const { return host_span<double>(model_.parameters().values()); }
  const std::vector<Parameter>& list() const { return model_.parameters().list(); }

  // Returns the mean loss over its own sequences.
  double step(int step) {
    const TrainOptions& o = plan_.options;
    const Share share = plan_.share(rank_);
    const Sampling sampling{.order = Order::sequential,
                            .global_batch = o.global_batch,
                            .length = plan_.tokens_of_sequence(),
                            .seed = o.seed};
    model_.parameters().zero_gradients();
    const double loss = model_.forward_backward(
        dataset_.batch(sampling, step, share.first, share.count, plan_.layout(rank_)),
        Count{share.count} * plan_.tokens_of_sequence());
    const std::span<double> g = host_span<double>(model_.parameters().gradients());
    double square = 0;
    for (const double each : g) square += each * each;
    norm = std::sqrt(square);
    const double clip = o.grad_clip > 0 ? std::min(1.0, o.grad_clip / (norm + 1e-6)) : 1;
    const double rate = learning_rate(o, step);
    for (const Parameter& parameter : list())
      for (auto i = static_cast<std::size_t>(parameter.offset);
           i < static_cast<std::size_t>(parameter.offset + parameter.count); ++i) {
        const double decay = parameter.decays() ? o.weight_decay : 0, x = g[i] * clip;
        double& w = weights()[i];
        if (o.optimizer == "sgd") {
          w -= rate * (x + decay * w);
          continue;
        }
        m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * x;
        v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * x * x;
        const double m = m_[i] / (1 - std::pow(o.beta1, step + 1)),
                     v = v_[i] / (1 - std::pow(o.beta2, step + 1));
        w -= rate * (decay * w + m / (std::sqrt(v) + o.eps));
      }
    return loss;
  }

  double norm = 0;

 private:
  const Plan& plan_;
  int rank_;
  Ledger ledger_;
  Dataset dataset_;
  Gpt model_;
  Numbers m_, v_;
};

// All replicas one after another, in one thread, and their outer steps.
struct PlainRun {
  std::map<std::string, Numbers> weights;  // in common, by name
  Numbers losses, norms;
};

PlainRun plain_run(int ranks, const TrainOptions& options) {
  const Plan plan = plan_of(options, ranks);
  const TrainOptions& o = plan.options;
  std::vector<std::unique_ptr<PlainReplica>> replicas;
  for (int r = 0; r < ranks; ++r) replicas.push_back(std::make_unique<PlainReplica>(plan, r));
  const std::size_t count = replicas[0]->weights().size();
  Numbers common(replicas[0]->weights().begin(), replicas[0]->weights().end()), momentum(count);
  std::map<int, std::vector<Numbers>> travelling;  // by the step after which they arrive
  PlainRun run;
  for (int step = 0; step < o.steps; ++step) {
    double loss = 0, norm = 0;
    for (auto& replica : replicas) {
      loss += replica->step(step) / ranks;
      norm = std::max(norm, replica->norm);
    }
    run.losses.push_back(loss);
    run.norms.push_back(norm);
    const int taken = step + 1;
    const auto arrive = [&] {
      for (const Numbers& mean : travelling[taken])
        for (std::size_t i = 0; i < count; ++i) {
          if (std::isnan(mean[i])) continue;
          momentum[i] = o.outer_momentum * momentum[i] + mean[i];
          common[i] -= o.outer_learning_rate * (mean[i] + o.outer_momentum * momentum[i]);
          for (auto& replica : replicas) {
            double& w = replica->weights()[i];
            w = o.outer_mix * w + (1 - o.outer_mix) * common[i];
          }
        }
    };
    if (o.outer_delay > 0) arrive();
    // How far each has gone, of those weights whose turn it is; nothing for the others.
    for (int f = 0; f < o.outer_fragments; ++f) {
      const int turn = f * *o.local_steps / o.outer_fragments;
      if (taken % *o.local_steps != turn) continue;
      Numbers mean(count, std::nan(""));
      const Parts parts(static_cast<Count>(count), o.outer_fragments);
      for (auto i = static_cast<std::size_t>(parts.offset(f));
           i < static_cast<std::size_t>(parts.offset(f + 1)); ++i) {
        mean[i] = 0;
        for (auto& replica : replicas) mean[i] += (common[i] - replica->weights()[i]) / ranks;
      }
      travelling[taken + o.outer_delay].push_back(mean);
    }
    if (o.outer_delay == 0) arrive();
  }
  for (const Parameter& parameter : replicas[0]->list())
    run.weights[parameter.name].assign(common.begin() + parameter.offset,
                                       common.begin() + parameter.offset + parameter.count);
  return run;
}

void expect_equals_plain(int ranks, TrainOptions options) {
  const PlainRun expected = plain_run(ranks, options);
  const test::Folder folder;
  options.save = folder.file("weights.safetensors");
  const TrainResult result = test::run(ranks, options);
  EXPECT_TRUE(theory_holds(result));
  ASSERT_EQ(result.steps.size(), expected.losses.size());
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    EXPECT_NEAR(result.steps[i].loss / expected.losses[i], 1, 1e-11) << i;
    EXPECT_NEAR(result.steps[i].grad_norm / expected.norms[i], 1, 1e-10) << i;
  }
  const SafetensorsFile file(options.save);
  EXPECT_EQ(file.tensors().size(), expected.weights.size());
  for (const TensorEntry& tensor : file.tensors()) {
    Numbers values(static_cast<std::size_t>(tensor.count()));
    file.read(tensor, host_slice(std::span(values)));
    SCOPED_TRACE(tensor.name);
    expect_near(values, expected.weights.at(tensor.name), 1e-11);
  }
}

struct Variant {
  int ranks, steps_alone, fragments, delay;
  double mix, outer_rate, outer_momentum;
  const char* optimizer = "adamw";
};
class LocalStepRuns : public testing::TestWithParam<Variant> {};

TEST_P(LocalStepRuns, EqualReplicasInPlainLoops) {
  const Variant& one = GetParam();
  TrainOptions options = local_run(one.steps_alone);
  options.global_batch = one.ranks == 3 ? 9 : 8;
  options.steps = LOCKSTEP_THOROUGH ? 8 : 4;
  options.outer_fragments = one.fragments;
  options.outer_delay = one.delay;
  options.outer_mix = one.mix;
  options.outer_learning_rate = one.outer_rate;
  options.outer_momentum = one.outer_momentum;
  options.optimizer = one.optimizer;
  if (options.optimizer == "sgd") options.momentum = 0;
  expect_equals_plain(one.ranks, options);
}
INSTANTIATE_TEST_SUITE_P(Variants, LocalStepRuns,
                         test::sampled<Variant>({{2, 2, 1, 0, 0, 0.7, 0.9},
                                                 {1, 2, 1, 0, 0, 0.7, 0.9},
                                                 {3, 1, 1, 0, 0, 0.5, 0.5},
                                                 {2, 4, 2, 0, 0, 0.7, 0.9},
                                                 {4, 3, 3, 1, 0.25, 0.7, 0.9},
                                                 {2, 2, 1, 2, 0.5, 0.7, 0.9},
                                                 {3, 4, 3, 1, 0, 1, 0},
                                                 {2, 3, 1, 0, 0.5, 0.7, 0},
                                                 {2, 2, 2, 1, 0, 0.7, 0.9, "sgd"}}));

TEST(LocalSteps, OfOneAreDdp) {
  for (const auto& [ranks, batch] : {std::pair(2, 8), {4, 8}, {3, 8}}) {
    TrainOptions local = plain(local_run(1)), together = plain(test::golden_run("ddp"));
    local.global_batch = together.global_batch = batch;
    TrainResult result, expected;
    const Numbers got = saved_weights(ranks, local, result);
    expect_near(got, saved_weights(ranks, together, expected), 1e-12);
    for (std::size_t i = 0; i < expected.steps.size(); ++i)
      EXPECT_NEAR(result.steps[i].loss, expected.steps[i].loss, 1e-12);
  }
}

// The weights of each replica, from a run of its own on its sequences, one after another.
TEST(LocalSteps, AverageWeights) {
  constexpr int ranks = 2, steps_alone = 3;
  TrainOptions options = plain(local_run(steps_alone));
  options.optimizer = "adamw";
  options.learning_rate = 0.001;
  options.steps = steps_alone;
  const Plan plan = plan_of(options, ranks);
  Numbers mean;
  std::vector<std::unique_ptr<PlainReplica>> replicas;
  for (int r = 0; r < ranks; ++r) {
    PlainReplica& replica = *replicas.emplace_back(std::make_unique<PlainReplica>(plan, r));
    for (int step = 0; step < steps_alone; ++step) replica.step(step);
  }
  const test::Folder folder;
  options.save = folder.file("weights.safetensors");
  test::run(ranks, options);
  const SafetensorsFile file(options.save);
  for (const Parameter& parameter : replicas[0]->list()) {
    const auto tensor = std::ranges::find(file.tensors(), parameter.name, &TensorEntry::name);
    ASSERT_NE(tensor, file.tensors().end()) << parameter.name;
    Numbers got(static_cast<std::size_t>(parameter.count)), expected(got.size());
    file.read(*tensor, host_slice(std::span(got)));
    for (std::size_t i = 0; i < got.size(); ++i)
      for (const auto& replica : replicas)
        expected[i] += replica->weights()[static_cast<std::size_t>(parameter.offset) + i] / ranks;
    expect_near(got, expected, 1e-12);
  }
}

// Without exchanges, replicas have gone different ways: a mean of weights is not what one of them has.
TEST(LocalSteps, GoDifferentWays) {
  TrainOptions options = plain(local_run(2));
  options.steps = 3;
  TrainResult local, together;
  const Numbers got = saved_weights(2, options, local);
  options.local_steps.reset();
  const Numbers other = saved_weights(2, options, together);
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - other[i]));
  EXPECT_GT(most, 1e-6);
}

// What rank 0 holds for a use at the most, and what all ranks sent in their last step.
Count held(const TrainResult& result, MemoryUse use) {
  return result.ranks[0].peak_bytes.at(std::string(name_of(use)));
}
Volume sent(const TrainResult& result) {
  Volume sum;
  for (const RankRecord& rank : result.ranks)
    for (const auto& [label, volume] : rank.traffic) {
      EXPECT_EQ(label, "outer gradients");
      sum += volume;
    }
  return sum;
}

TEST(LocalSteps, SendTheWeightsOnceInAWindow) {
  constexpr int ranks = 3, steps_alone = 4;
  for (const int fragments : {1, 3, 4})
    for (const int delay : {0, 1}) {
      TrainOptions options = local_run(steps_alone);
      options.global_batch = 9;
      options.outer_fragments = fragments;
      options.outer_delay = delay;
      Volume all;
      int steps_that_send = 0;
      TrainResult result;
      // The second window: each fragment has its turn.
      for (int step = steps_alone; step < 2 * steps_alone; ++step) {
        options.steps = step;
        result = test::run(ranks, options);
        EXPECT_TRUE(theory_holds(result)) << step;
        const Volume in_step = sent(result);
        EXPECT_LE(in_step.sent_bytes,
                  2 * (ranks - 1) * ((result.parameters + fragments - 1) / fragments) * 8);
        steps_that_send += in_step.sent_messages > 0 ? 1 : 0;
        all += in_step;
      }
      EXPECT_EQ(all.sent_bytes, 2 * (ranks - 1) * result.parameters * 8);
      EXPECT_EQ(all.sent_messages, 2 * (ranks - 1) * ranks * fragments);
      EXPECT_EQ(steps_that_send, fragments);
    }
}

TEST(LocalSteps, HoldTheCommonWeightsAndTheirMomentum) {
  TrainOptions options = local_run(2);
  for (const bool has_momentum : {true, false}) {
    options.outer_momentum = has_momentum ? 0.9 : 0;
    for (const int delay : {0, 1}) {
      options.outer_delay = delay;
      const TrainResult result = test::run(2, options);
      EXPECT_TRUE(theory_holds(result));
      const Count psi = result.parameters * 8;
      EXPECT_EQ(held(result, MemoryUse::optimizer), (2 + 1 + (has_momentum ? 1 : 0)) * psi);
      EXPECT_GE(held(result, MemoryUse::communication), delay * psi);
    }
  }
}

// A run that ends before the first exchange; and one rank, which has nobody to send to.
TEST(LocalSteps, HoldTheirClosedFormsAnywhere) {
  for (const auto& [ranks, steps, method] : {std::tuple(2, 3, "none"),
                                             {1, 8, "none"},
                                             {3, 8, "bf16"},
                                             {3, 8, "int8"},
                                             {2, 8, "onebit"},
                                             {3, 8, "topk:0.1"},
                                             {2, 8, "powersgd:2"}}) {
    TrainOptions options = local_run(4);
    options.steps = steps;
    options.global_batch = 9;
    options.exchange = method;
    const TrainResult result = test::run(ranks, options);
    EXPECT_TRUE(theory_holds(result)) << ranks << " " << method;
    EXPECT_LT(result.steps.back().loss, result.steps.front().loss) << method;
  }
}

// Ranks that split layers or have other stages change nothing.
TEST(LocalSteps, OfWholeModelsOnSeveralRanksAreThoseOfOne) {
  TrainOptions options = local_run(3);
  options.steps = 7;
  options.outer_delay = 1;
  options.outer_mix = 0.25;
  TrainResult expected;
  const Numbers weights = saved_weights(2, options, expected);
  for (const auto& [tp, pp, schedule] :
       {std::tuple(2, 1, "1f1b"), {1, 2, "1f1b"}, {2, 2, "zb-h1"}}) {
    options.technique = "3d";
    options.mesh_lengths[Axis::tp] = tp;
    options.mesh_lengths[Axis::pp] = pp;
    options.schedule = schedule;
    options.sequence_parallel = tp > 1;
    options.micro_batches = 2;
    TrainResult result;
    expect_near(saved_weights(2 * tp * pp, options, result), weights, 1e-10);
    test::expect_same_steps(result, expected, 1e-10);
  }
}

TEST(LocalSteps, TakeOtherOptimizersAndAdapters) {
  TrainOptions options = local_run(2);
  options.optimizer = "muon";
  EXPECT_TRUE(theory_holds(test::run(2, options)));
  options.technique = "3d";
  options.mesh_lengths[Axis::tp] = 2;
  EXPECT_TRUE(theory_holds(test::run(4, options)));
  options = local_run(2);
  options.lora_rank = 2;
  EXPECT_TRUE(theory_holds(test::run(2, options)));
}

TEST(LocalSteps, RefuseWhatTheyCannotDo) {
  const auto refused = [](const auto& change, const char* technique = "ddp") {
    TrainOptions options = local_run(4, technique);
    change(options);
    return test::refusal(2, options);
  };
  EXPECT_THAT(refused([](auto& o) { o.local_steps = 0; }), HasSubstr("--local-steps 0"));
  EXPECT_THAT(refused([](auto& o) { o.outer_momentum = 1; }), HasSubstr("--outer-momentum"));
  EXPECT_THAT(refused([](auto& o) { o.outer_mix = 1; }), HasSubstr("--outer-mix"));
  EXPECT_THAT(refused([](auto& o) { o.outer_fragments = 5; }),
              HasSubstr("at most as many as steps"));
  EXPECT_THAT(refused([](auto& o) { o.outer_fragments = 2, o.outer_delay = 3; }),
              HasSubstr("wait for at most 2 steps"));
  EXPECT_THAT(refused([](auto& o) { o.dtype = DType::bf16; }), HasSubstr("with --dtype bf16"));
  EXPECT_THAT(refused([](auto& o) { o.loss_scaling = "torch"; }),
              HasSubstr("with --loss-scaling torch"));
  EXPECT_THAT(refused([](auto& o) { o.zero_stage = 1; }, "3d"), HasSubstr("with ZeRO stage 1"));
  EXPECT_THAT(refused([](auto& o) { o.mesh_lengths[Axis::cp] = 2; }, "3d"),
              HasSubstr("with --cp 2"));
  EXPECT_THAT(refused([](auto& o) { o.outer_fragments = 2, o.exchange = "powersgd:2"; }),
              HasSubstr("fragments cut matrices"));
  EXPECT_THAT(refused([](auto& o) { o.checkpoint = "folder", o.checkpoint_async = true; }),
              HasSubstr("with --checkpoint-async"));
  for (const auto& [fragments, exchange] : {std::pair(2, "none"), {1, "int8"}}) {
    TrainOptions split = local_run(4, "3d"), staged = split;
    split.mesh_lengths[Axis::pp] = 2;
    staged.schedule = "interleaved";
    staged.virtual_stages = 2;
    for (TrainOptions options : {split, staged}) {
      options.outer_fragments = fragments;
      options.exchange = exchange;
      EXPECT_THAT(test::refusal(2, options), HasSubstr("models in several parts"));
    }
  }
  TrainOptions experts = test::run_with_experts("3d");
  experts.local_steps = 2;
  EXPECT_THAT(test::refusal(2, experts), HasSubstr("a model that has experts"));
}

}  // namespace
}  // namespace lockstep
