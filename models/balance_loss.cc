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
  const Count number = config_.balance_level == BalanceLevel::sequence ? sequences : 1;
  const Count first_token = tokens * sharers_.row_rank;
  const Count each = tokens * sharers_.row_ranks / number;
  std::vector<Part> parts;
  for (Count i = 0; i < number; ++i) {
    const Count first = std::clamp(i * each - first_token, Count{0}, tokens);
    const Count end = std::clamp((i + 1) * each - first_token, Count{0}, tokens);
    parts.push_back(
        {.number = static_cast<std::size_t>(i),
         .first = first,
         .count = end - first,
         .tokens = static_cast<double>(tokens * sharers_.ranks) / static_cast<double>(number),
         .sequences = static_cast<double>(sequences / number)});
  }
  return parts;
}

void Router::count_parts(Routing& routing, Count sequences) const {
  if (config_.balance_level == BalanceLevel::global_batch) return;
  const auto number = static_cast<std::size_t>(experts());
  for (const Part& part : parts(std::ssize(routing.experts) / per_token(), sequences)) {
    routing.choices_of_parts.resize((part.number + 1) * number);
    for (Count k = part.first * per_token(); k < (part.first + part.count) * per_token(); ++k)
      routing.choices_of_parts[part.number * number + routing.experts[k]] += 1;
  }
  if (sharers_.add_up) sharers_.add_up(routing.choices_of_parts);
}

std::vector<double> Router::shares(const Routing& routing, Part part) const {
  if (config_.balance_level == BalanceLevel::global_batch) {
    assert(!shares_.empty());
    return shares_;
  }
  const std::span choices = std::span(routing.choices_of_parts)
                                .subspan(part.number * static_cast<std::size_t>(experts()),
                                         static_cast<std::size_t>(experts()));
  std::vector<double> shares(choices.begin(), choices.end());
  for (double& share : shares) share /= part.tokens * static_cast<double>(per_token());
  return shares;
}

double Router::balance_loss(Numbers scores, const Routing& routing, Part part) const {
  const std::vector<double> share = shares(routing, part);
  double loss = 0;
  for (Count t = part.first; t < part.first + part.count; ++t) {
    const std::vector<double> affinity = affinities(of_token(scores, t, experts()), config_.router);
    const double sum = std::reduce(affinity.begin(), affinity.end());
    loss += std::inner_product(share.begin(), share.end(), affinity.begin(), 0.0) / sum;
  }
  return static_cast<double>(experts()) * loss / part.tokens;
}

// Probabilities are a_e / sum of all a, so their gradient is (f_e - sum_i f_i p_i) / sum, times that
// of a_e by its score.
// lab: balance_gradient
void Router::add_balance_gradient(std::span<double> dscores, Numbers scores, const Routing& routing,
                                  Part part, double scale) const {
  const std::vector<double> share = shares(routing, part);
  // lab: solution
  const double factor = scale * static_cast<double>(experts()) / part.tokens;
  for (Count t = part.first; t < part.first + part.count; ++t) {
    const std::vector<double> affinity = affinities(of_token(scores, t, experts()), config_.router);
    const double sum = std::reduce(affinity.begin(), affinity.end());
    const double mean = std::inner_product(share.begin(), share.end(), affinity.begin(), 0.0) / sum;
    for (Count e = 0; e < experts(); ++e) {
      const double a = affinity[e];
      const double slope = config_.router == RouterWeights::sigmoid ? a * (1 - a) : a;
      dscores[t * experts() + e] += factor * slope / sum * (share[e] - mean);
    }
  }
  // lab: given
}
// lab: end

}  // namespace lockstep
