// The part of a router that balances experts: its losses with their gradients, and its bias.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "models/affinities.h"
#include "models/routing.h"

namespace lockstep {

// Whole numbers, so that every rank finds the same sign.
void Router::balance(Numbers choices) {
  const double sum = std::reduce(choices.begin(), choices.end());
  for (std::size_t e = 0; e < bias_.size(); ++e) {
    const double missing = sum - static_cast<double>(experts()) * choices[e];
    if (missing != 0) bias_[e] += std::copysign(config_.bias_rate, missing);
  }
}

std::vector<double> Router::probabilities(Numbers scores) const {
  std::vector<double> sums(static_cast<std::size_t>(experts()));
  for (Count first = 0; first < std::ssize(scores); first += experts()) {
    const std::vector<double> own =
        affinities(of_token(scores, first / experts(), experts()), config_.router);
    const double sum = std::reduce(own.begin(), own.end());
    for (std::size_t e = 0; e < own.size(); ++e) sums[e] += own[e] / sum;
  }
  return sums;
}

double Router::share_choices(Numbers choices, Numbers probabilities) {
  const double sum = std::reduce(choices.begin(), choices.end());
  shares_.assign(choices.begin(), choices.end());
  for (double& share : shares_) share /= sum;
  const double tokens = sum / static_cast<double>(per_token());
  return std::inner_product(shares_.begin(), shares_.end(), probabilities.begin(), 0.0) / tokens;
}

std::vector<Router::Part> Router::parts(Count tokens, Count sequences) const {
  if (config_.balance_level != BalanceLevel::sequence)
    return {{0, tokens, static_cast<double>(sequences)}};
  std::vector<Part> parts;
  for (Count s = 0; s < sequences; ++s)
    parts.push_back({s * tokens / sequences, tokens / sequences, 1});
  return parts;
}

std::vector<double> Router::shares(const Routing& routing, Part tokens) const {
  if (config_.balance_level == BalanceLevel::global_batch) {
    assert(!shares_.empty());
    return shares_;
  }
  std::vector<double> shares(static_cast<std::size_t>(experts()));
  for (Count k = 0; k < tokens.count * per_token(); ++k)
    shares[routing.experts[tokens.first * per_token() + k]] += 1;
  for (double& share : shares) share /= static_cast<double>(tokens.count * per_token());
  return shares;
}

double Router::balance_loss(Numbers scores, const Routing& routing, Part tokens) const {
  const std::vector<double> share = shares(routing, tokens);
  double loss = 0;
  for (Count t = tokens.first; t < tokens.first + tokens.count; ++t) {
    const std::vector<double> affinity = affinities(of_token(scores, t, experts()), config_.router);
    const double sum = std::reduce(affinity.begin(), affinity.end());
    loss += std::inner_product(share.begin(), share.end(), affinity.begin(), 0.0) / sum;
  }
  return static_cast<double>(experts()) * loss / static_cast<double>(tokens.count);
}

// Probabilities are a_e / sum of all a, so their gradient is (f_e - sum_i f_i p_i) / sum, times that
// of a_e by its score.
void Router::add_balance_gradient(std::span<double> dscores, Numbers scores, const Routing& routing,
                                  Part tokens, double scale) const {
  const std::vector<double> share = shares(routing, tokens);
  const double factor = scale * static_cast<double>(experts()) / static_cast<double>(tokens.count);
  for (Count t = tokens.first; t < tokens.first + tokens.count; ++t) {
    const std::vector<double> affinity = affinities(of_token(scores, t, experts()), config_.router);
    const double sum = std::reduce(affinity.begin(), affinity.end());
    const double mean = std::inner_product(share.begin(), share.end(), affinity.begin(), 0.0) / sum;
    for (Count e = 0; e < experts(); ++e) {
      const double a = affinity[e];
      const double slope = config_.router == RouterWeights::sigmoid ? a * (1 - a) : a;
      dscores[t * experts() + e] += factor * slope / sum * (share[e] - mean);
    }
  }
}

}  // namespace lockstep
