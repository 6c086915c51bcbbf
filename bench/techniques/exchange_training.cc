// Trainings that exchange gradients in different ways, with several seeds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/techniques/exchange.h"
#include "collectives/base/error.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

// Keeps the gradients of the first step, on rank 0.
class FirstGradients final : public TrainingWatch {
 public:
  void on_gradients(TrainingRank& rank, const StepRecord& step) override {
    if (step.step > 0) return;
    rank.gather(Gathered::gradients, [this](const Parameters&, Slice flat) {
      const std::span<const float> part = host_span<float>(flat);
      gradients_.insert(gradients_.end(), part.begin(), part.end());
    });
  }
  void after_step(const StepRecord&) override {}
  void at_end(TrainingRank&, const CountedStep&, const Prediction&) override {}

  std::vector<float> gradients_;
};

double product(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

// The distance from `exact` to the closest multiple of `x`, over the norm of `exact`.
double error_of(const std::vector<float>& x, const std::vector<float>& exact) {
  const double cosine = product(x, exact) / std::sqrt(product(x, x) * product(exact, exact));
  return std::sqrt(std::max(0.0, 1 - cosine * cosine));
}

struct Trained {
  TrainResult result;
  std::vector<float> first_gradients;
};

Trained run_training(const ExchangeBenchOptions& options, const std::string& method, int seed) {
  TrainOptions train_options = exchanging(options.train, method);
  train_options.seed = static_cast<std::uint64_t>(seed);
  const Plan plan = plan_of(train_options, options.ranks.front());
  Trained trained;
  launch({.ranks = plan.ranks, .fault = {}, .device = &host_device()}, [&](RankContext& context) {
    FirstGradients first;
    TrainResult mine = train(context, plan, {}, seed == 1 ? &first : nullptr);
    if (context.world.rank() == 0)
      trained = {.result = std::move(mine), .first_gradients = std::move(first.gradients_)};
  });
  return trained;
}

void print_training(const ExchangeTraining& t) {
  fmt::print("{:<13} {:>5}", t.method, t.ranks);
  if (!t.skipped.empty()) return fmt::print(" skipped: {}\n", t.skipped);
  const auto [least, most] = std::ranges::minmax(t.validation_losses);
  double sum = 0;
  for (const double loss : t.validation_losses) sum += loss;
  fmt::print(" {:>10.3f} {:>10.4f} {:>10.4f} {:>10.4f} {:>10.4f}\n",
             static_cast<double>(t.sent_bytes) / (1 << 20), t.error,
             sum / static_cast<double>(t.validation_losses.size()), least, most);
}

}  // namespace

std::vector<ExchangeTraining> train_exchanges(const ExchangeBenchOptions& options) {
  fmt::print("{:<13} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "# training", "ranks", "sent MiB",
             "error", "validation", "least", "most");
  std::vector<ExchangeTraining> trainings;
  // What the other methods are compared with.
  const std::vector<float> exact = run_training(options, "none", 1).first_gradients;
  for (const std::string& method : options.methods) {
    ExchangeTraining& training = trainings.emplace_back(
        ExchangeTraining{.method = method, .ranks = options.ranks.front(), .skipped = {}});
    try {
      for (int seed = 1; seed <= options.seeds; ++seed) {
        const Trained trained = run_training(options, method, seed);
        if (seed == 1) training.error = error_of(trained.first_gradients, exact);
        std::vector<double>& losses = training.losses.emplace_back();
        for (const StepRecord& step : trained.result.steps) losses.push_back(step.loss);
        training.validation_losses.push_back(trained.result.validation.back().loss);
        const auto& traffic = trained.result.ranks.front().traffic;
        training.sent_bytes = traffic.at("gradients").sent_bytes;
        if (const auto gathered = traffic.find("parameters"); gathered != traffic.end())
          training.sent_bytes += gathered->second.sent_bytes;
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input) throw;
      training.skipped = error.what();
    }
    print_training(training);
  }
  return trainings;
}

}  // namespace lockstep
