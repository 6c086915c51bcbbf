#include "bench/burn_in/replay_votes.h"

#include <algorithm>
#include <optional>

namespace lockstep {
namespace {

// The bits that more than half of the votes have.
std::optional<std::uint64_t> majority_of(const std::vector<std::uint64_t>& votes) {
  for (const std::uint64_t bits : votes)
    if (2 * std::ranges::count(votes, bits) > std::ssize(votes)) return bits;
  return {};
}

}  // namespace

std::vector<WrongStep> ReplayVotes::judge(std::span<const std::vector<StepBits>> bits,
                                          std::span<const int> kind_of_rank) {
  std::map<std::pair<int, std::size_t>, std::vector<std::uint64_t>> votes;
  for (std::size_t rank = 0; rank < bits.size(); ++rank)
    for (std::size_t step = 0; step < bits[rank].size(); ++step) {
      auto& own = votes[{kind_of_rank[rank], step}];
      own.push_back(bits[rank][step].first);
      own.push_back(bits[rank][step].again);
    }
  for (const auto& [of, cast] : votes)
    if (const auto majority = majority_of(cast); majority && !right_.contains(of))
      right_[of] = *majority;

  std::vector<WrongStep> wrong;
  for (std::size_t rank = 0; rank < bits.size(); ++rank)
    for (std::size_t step = 0; step < bits[rank].size(); ++step) {
      const auto& [first, again] = bits[rank][step];
      const auto right = right_.find({kind_of_rank[rank], step});
      ++compared_;
      if (first == again && right != right_.end() && first == right->second) continue;
      wrong.push_back({.rank = static_cast<int>(rank),
                       .step = static_cast<int>(step),
                       .kind = first != again          ? WrongBits::changing
                               : right != right_.end() ? WrongBits::different
                                                       : WrongBits::disputed});
    }
  return wrong;
}

}  // namespace lockstep
