#include "parallel/fuzz/replicas_apart.h"

#include "collectives/base/device.h"

namespace lockstep {
namespace {

// A serial rank has all parameters, in one buffer.
Slice weights_of(TrainingRank& rank) { return rank.states().front().parameters->values(); }

}  // namespace

ReplicasApart::ReplicasApart(const std::vector<std::unique_ptr<TrainingRank>>& replicas,
                             const TrainOptions& options)
    : replicas_(replicas),
      options_(options),
      common_(widened(weights_of(*replicas.front()))),
      momentum_(common_.size()) {}

void ReplicasApart::after_step(int steps) {
  end_exchanges(steps);
  start_exchanges(steps);
  end_exchanges(steps);
}

void ReplicasApart::end_exchanges(int steps) {
  for (; !under_way_.empty() && under_way_.front().due == steps; under_way_.pop_front())
    take_outer_step(under_way_.front());
}

void ReplicasApart::start_exchanges(int steps) {
  const int fragments = options_.outer_fragments;
  const Parts parts(static_cast<Count>(common_.size()), fragments);
  for (int f = 0; f < fragments; ++f) {
    if (steps % *options_.local_steps != f * *options_.local_steps / fragments) continue;
    Exchange& exchange = under_way_.emplace_back(
        Exchange{.due = steps + options_.outer_delay,
                 .begin = static_cast<std::size_t>(parts.offset(f)),
                 .differences = Values(static_cast<std::size_t>(parts[f]))});
    for (const auto& replica : replicas_) {
      const Values weights = widened(weights_of(*replica));
      for (std::size_t i = 0; i < exchange.differences.size(); ++i)
        exchange.differences[i] += (common_[exchange.begin + i] - weights[exchange.begin + i]) /
                                   static_cast<double>(replicas_.size());
    }
  }
}

// Stochastic gradient descent with Nesterov's momentum.
void ReplicasApart::take_outer_step(const Exchange& exchange) {
  const double momentum = options_.outer_momentum, mix = options_.outer_mix;
  for (std::size_t i = 0; i < exchange.differences.size(); ++i) {
    double& moving = momentum_[exchange.begin + i];
    moving = momentum * moving + exchange.differences[i];
    common_[exchange.begin + i] -=
        options_.outer_learning_rate * (exchange.differences[i] + momentum * moving);
  }
  for (const auto& replica : replicas_) {
    const Slice all = weights_of(*replica);
    Values weights = widened(all);
    for (std::size_t i = exchange.begin; i < exchange.begin + exchange.differences.size(); ++i)
      weights[i] = mix * weights[i] + (1 - mix) * common_[i];
    host_device().convert(all, host_slice(std::span(weights)));
  }
}

}  // namespace lockstep
