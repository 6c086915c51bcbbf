#include "models/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "collectives/base/error.h"
#include "models/affinities.h"

namespace lockstep {
namespace {

void to_softmax(std::span<double> scores) {
  const double highest = std::ranges::max(scores);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (double& score : scores) score /= sum;
}

double sigmoid(double score) { return 1 / (1 + std::exp(-score)); }

double log_sum_exp(Numbers scores) {
  const double highest = std::ranges::max(scores);
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  return highest + std::log(sum);
}

double entropy_of(Numbers affinities) {
  const double sum = std::reduce(affinities.begin(), affinities.end());
  double entropy = 0;
  for (const double a : affinities)
    if (a > 0) entropy -= a / sum * std::log(a / sum);
  return entropy;
}

template <typename Number>
void add_counts(std::vector<Number>& sums, const std::vector<Number>& counts) {
  sums.resize(counts.size());
  std::ranges::transform(sums, counts, sums.begin(), std::plus());
}

}  // namespace

std::vector<double> affinities(Numbers scores, RouterWeights kind) {
  std::vector<double> made(scores.begin(), scores.end());
  if (kind == RouterWeights::sigmoid)
    std::ranges::transform(made, made.begin(), sigmoid);
  else
    to_softmax(made);
  return made;
}

void RoutingTotals::add(int layer, const Routing& routing) {
  balance += routing.balance;
  z += routing.z;
  entropy += routing.entropy;
  chosen += std::ssize(routing.rows);
  dropped += std::ranges::count(routing.rows, -1);
  add_counts(tokens[layer], routing.counts);
  add_counts(choices[layer], routing.choices);
  add_counts(probabilities[layer], routing.probabilities);
}

void RoutingTotals::add(const RoutingTotals& other) {
  balance += other.balance;
  z += other.z;
  entropy += other.entropy;
  chosen += other.chosen;
  dropped += other.dropped;
  for (const auto& [layer, counts] : other.tokens) add_counts(tokens[layer], counts);
  for (const auto& [layer, counts] : other.choices) add_counts(choices[layer], counts);
  for (const auto& [layer, sums] : other.probabilities) add_counts(probabilities[layer], sums);
}

std::string router_bias_name(int layer) { return fmt::format("h.{}.mlp.router.bias", layer); }

void Router::set_bias(std::vector<double> bias) {
  require(bias.size() == bias_.size(),
          fmt::format("a router's bias for {} experts instead of {}", bias.size(), bias_.size()));
  bias_ = std::move(bias);
}

Routing Router::choose(Numbers scores, Count sequences) const {
  const Count n = std::ssize(scores) / experts();
  Routing routing;
  std::vector<std::int32_t> ordered(static_cast<std::size_t>(experts()));
  for (Count t = 0; t < n; ++t) {
    const Numbers own = of_token(scores, t, experts());
    const std::vector<double> affinity = affinities(own, config_.router);
    order(ordered, own, affinity);
    const std::span chosen = std::span(ordered).first(static_cast<std::size_t>(per_token()));
    double sum = 0;
    for (const std::int32_t e : chosen) sum += affinity[e];
    const double divisor = config_.router == RouterWeights::softmax_unnormalized ? 1 : sum;
    for (const std::int32_t e : chosen) {
      routing.experts.push_back(e);
      routing.weights.push_back(affinity[e] / divisor);
    }
    if (config_.z_loss > 0) routing.z += std::pow(log_sum_exp(own), 2);
    routing.entropy += entropy_of(affinity);
  }
  sort_rows(routing);
  count_parts(routing, sequences);
  if (config_.balance_level == BalanceLevel::global_batch)
    routing.probabilities = probabilities(scores);
  else
    for (const Part& part : parts(n, sequences))
      routing.balance += part.sequences * balance_loss(scores, routing, part);
  return routing;
}

Routing Router::choose_as_assumed(Count tokens, Count sequences) const {
  Routing routing;
  if (assumed_)
    routing.experts = assumed_(layer_, tokens);
  else
    for (Count choice = 0; choice < tokens * per_token(); ++choice)
      routing.experts.push_back(static_cast<std::int32_t>(choice % experts()));
  routing.weights.assign(routing.experts.size(), 1.0 / static_cast<double>(per_token()));
  if (config_.balance_level == BalanceLevel::global_batch)
    routing.probabilities.resize(static_cast<std::size_t>(experts()));
  sort_rows(routing);
  count_parts(routing, sequences);
  return routing;
}

void Router::order(std::vector<std::int32_t>& ordered, Numbers scores, Numbers affinities) const {
  std::iota(ordered.begin(), ordered.end(), 0);
  const auto biased = [&](std::int32_t e) {
    return affinities[e] + (bias_.empty() ? 0 : bias_[e]);
  };
  std::ranges::stable_sort(ordered, std::greater(),
                           [&](std::int32_t e) { return bias_.empty() ? scores[e] : biased(e); });
  if (config_.groups == 1) return;
  const Count in_group = experts() / config_.groups;
  const Count counted = std::min<Count>(in_group, per_token() / config_.chosen_groups);
  std::vector<double> of_group(static_cast<std::size_t>(config_.groups));
  std::vector<Count> seen(of_group.size());
  for (const std::int32_t e : ordered)
    if (const Count group = e / in_group; seen[group]++ < counted) of_group[group] += biased(e);
  std::vector<Count> groups(of_group.size());
  std::iota(groups.begin(), groups.end(), 0);
  std::ranges::stable_sort(groups, std::greater(), [&](Count group) { return of_group[group]; });
  const std::span chosen = std::span(groups).first(static_cast<std::size_t>(config_.chosen_groups));
  std::ranges::stable_partition(
      ordered, [&](std::int32_t e) { return std::ranges::count(chosen, e / in_group) > 0; });
}

std::vector<bool> Router::kept(const Routing& routing) const {
  const Count capacity = config_.capacity_of(std::ssize(routing.experts) / per_token());
  std::vector<std::size_t> choices(routing.experts.size());
  std::iota(choices.begin(), choices.end(), 0);
  if (!config_.drops_by_position)
    std::ranges::stable_sort(choices, std::greater(),
                             [&](std::size_t choice) { return routing.weights[choice]; });
  std::vector<bool> kept(choices.size());
  std::vector<Count> taken(static_cast<std::size_t>(experts()));
  for (const std::size_t choice : choices)
    kept[choice] = taken[routing.experts[choice]]++ < capacity;
  return kept;
}

void Router::sort_rows(Routing& routing) const {
  routing.layer = layer_;
  const std::vector<bool> is_kept = kept(routing);
  routing.counts.assign(static_cast<std::size_t>(experts()), 0);
  routing.choices = routing.counts;
  for (std::size_t choice = 0; choice < is_kept.size(); ++choice) {
    ++routing.choices[routing.experts[choice]];
    if (is_kept[choice]) ++routing.counts[routing.experts[choice]];
  }
  std::vector<Count> next(routing.counts.size());
  std::exclusive_scan(routing.counts.begin(), routing.counts.end(), next.begin(), Count{0});
  routing.tokens.resize(static_cast<std::size_t>(std::ranges::count(is_kept, true)));
  routing.rows.assign(routing.experts.size(), -1);
  for (std::size_t choice = 0; choice < routing.experts.size(); ++choice) {
    if (!is_kept[choice]) continue;
    const Count row = next[routing.experts[choice]]++;
    routing.rows[choice] = static_cast<std::int32_t>(row);
    routing.tokens[row] = static_cast<std::int32_t>(static_cast<Count>(choice) / per_token());
  }
}

// lab: backward
// Of the chosen experts c with affinities a: w_c = a_c / sum of the chosen a, or a_c.
void Router::backward(std::span<double> dscores, Numbers scores, Numbers products,
                      const Routing& routing, Count sequences, double scale) const {
  const Count n = std::ssize(scores) / experts();
  for (Count t = 0; t < n; ++t) {
    const Numbers own = of_token(scores, t, experts());
    const std::vector<double> affinity = affinities(own, config_.router);
    const auto d = dscores.subspan(static_cast<std::size_t>(t * experts()), own.size());
    // lab: solution
    double mean = 0, sum = 0;  // of the chosen: products by their weights, affinities
    for (Count k = t * per_token(); k < (t + 1) * per_token(); ++k) {
      mean += products[k] * routing.weights[k];
      sum += affinity[routing.experts[k]];
    }
    const bool unnormalized = config_.router == RouterWeights::softmax_unnormalized;
    for (Count e = 0; e < experts(); ++e) d[e] = unnormalized ? -affinity[e] * mean : 0;
    for (Count k = t * per_token(); k < (t + 1) * per_token(); ++k) {
      const std::int32_t e = routing.experts[k];
      const double a = affinity[e];
      switch (config_.router) {
        case RouterWeights::softmax:
          d[e] = routing.weights[k] * (products[k] - mean);
          break;
        case RouterWeights::softmax_unnormalized:
          d[e] += a * products[k];
          break;
        case RouterWeights::sigmoid:
          d[e] = a * (1 - a) / sum * (products[k] - mean);
          break;
      }
    }
    // lab: given
  }
  if (scale == 0) return;
  if (config_.balance > 0)
    for (const Part& part : parts(n, sequences))
      add_balance_gradient(dscores, scores, routing, part,
                           scale * part.sequences * config_.balance);
  if (config_.z_loss > 0)
    add_z_gradient(dscores, scores,
                   scale * config_.z_loss * static_cast<double>(sequences) /
                       static_cast<double>(n * sharers_.ranks));
}
// lab: end

void Router::add_z_gradient(std::span<double> dscores, Numbers scores, double scale) const {
  for (Count first = 0; first < std::ssize(scores); first += experts()) {
    const Numbers own = of_token(scores, first / experts(), experts());
    const double lse = log_sum_exp(own);
    for (Count e = 0; e < experts(); ++e)
      dscores[first + e] += scale * 2 * lse * std::exp(own[e] - lse);
  }
}

}  // namespace lockstep
