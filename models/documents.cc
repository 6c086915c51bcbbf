#include "models/documents.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/random.h"

namespace lockstep {
namespace {

// Of the tokens of a range that lie in the document `begin` .. `end` - 1.
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

std::vector<int> balanced_order(std::span<const Count> lengths, int groups) {
  constexpr std::uint64_t tries_per_document = 16, any_seed = 1;
  const std::vector<Positions> ranks = positions_of_ranks(lengths, TokenOrder::zig_zag, groups);
  const auto busiest = [&](const std::vector<int>& order) {
    return std::ranges::max(pairs_of(ranks, lengths, order));
  };
  std::vector<int> best = given_order(lengths);
  Count fewest = busiest(best);
  const std::uint64_t documents = lengths.size();
  for (std::uint64_t i = 0; i < tries_per_document * documents; ++i) {
    std::vector<int> changed = best;
    std::swap(changed[random_bits(any_seed, i, 0) % documents],
              changed[random_bits(any_seed, i, 1) % documents]);
    const Count pairs = busiest(changed);
    // Equally good ones too: from there a better one may be near.
    if (pairs > fewest) continue;
    fewest = pairs;
    best = std::move(changed);
  }
  return best;
}

}  // namespace lockstep
