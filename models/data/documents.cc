#include "models/data/documents.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/random.h"

namespace lockstep {
namespace {

// Returns the pairs of the tokens of a range that lie in the document `begin` .. `end` - 1.
Count pairs_in_document(const PositionRange& range, Count begin, Count end) {
  const Count first = range.up_to(begin - 1), last = range.up_to(end - 1), count = last - first;
  return count * (range.first - begin + 1) +
         range.stride * (last * (last - 1) - first * (first - 1)) / 2;
}

std::vector<Count> pairs_of(std::span<const Positions> ranks, std::span<const Count> lengths,
                            std::span<const int> order) {
  std::vector<Count> pairs(ranks.size());
  Count begin = 0;
  for (const int document : order) {
    const Count end = begin + lengths[document];
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (const PositionRange& range : ranks[rank].ranges)
        pairs[rank] += pairs_in_document(range, begin, end);
    begin = end;
  }
  return pairs;
}

std::vector<Positions> positions_of_ranks(std::span<const Count> lengths, TokenOrder order,
                                          int groups) {
  const Count length = std::accumulate(lengths.begin(), lengths.end(), Count{0});
  std::vector<Positions> ranks;
  for (int rank = 0; rank < groups; ++rank)
    ranks.push_back(
        TokenLayout{.order = order, .ranks = groups, .rank = rank}.positions_of_group(length));
  return ranks;
}

std::vector<int> given_order(std::span<const Count> lengths) {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

std::vector<Count> pairs_of_ranks(std::span<const Count> lengths, TokenOrder order, int groups) {
  return pairs_of(positions_of_ranks(lengths, order, groups), lengths, given_order(lengths));
}

double imbalance(std::span<const Count> pairs) {
  const auto sum = static_cast<double>(std::accumulate(pairs.begin(), pairs.end(), Count{0}));
  return static_cast<double>(*std::ranges::max_element(pairs)) * static_cast<double>(pairs.size()) /
         sum;
}

std::vector<std::vector<int>> balanced_orders(std::span<const std::vector<Count>> sequences,
                                              int groups) {
  constexpr std::uint64_t tries_per_document = 16, any_seed = 1;
  std::vector<std::vector<int>> best;
  std::vector<std::vector<Count>> pairs;
  std::vector<Count> all(static_cast<std::size_t>(groups));
  std::uint64_t documents = 0;
  for (const std::vector<Count>& lengths : sequences) {
    best.push_back(given_order(lengths));
    pairs.push_back(pairs_of_ranks(lengths, TokenOrder::striped, groups));
    std::ranges::transform(all, pairs.back(), all.begin(), std::plus());
    documents += lengths.size();
  }
  for (std::uint64_t i = 0; i < tries_per_document * documents; ++i) {
    const auto random = [&](std::int64_t index, std::size_t below) {
      return random_bits(any_seed, static_cast<std::int64_t>(i), index) % below;
    };
    const std::size_t s = random(0, sequences.size());
    const std::vector<Count>& lengths = sequences[s];
    std::vector<int> order = best[s];
    std::swap(order[random(1, order.size())], order[random(2, order.size())]);
    std::vector<Count> changed =
        pairs_of(positions_of_ranks(lengths, TokenOrder::striped, groups), lengths, order);
    std::vector<Count> total = all;
    for (std::size_t rank = 0; rank < total.size(); ++rank)
      total[rank] += changed[rank] - pairs[s][rank];
    // Equally good orders also count: a better one may be near.
    if (std::ranges::max(total) > std::ranges::max(all)) continue;
    best[s] = std::move(order);
    pairs[s] = std::move(changed);
    all = std::move(total);
  }
  return best;
}

}  // namespace lockstep
