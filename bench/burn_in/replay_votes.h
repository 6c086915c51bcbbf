// Finds ranks that compute wrong without a sign, from the bits of training steps that all ranks
// repeat. Ranks with the same processor and device must get the same bits, each time.
//
// The right bits of a step are those that more than half of all votes have: a vote for each time
// that a rank of a kind computed the step in a pass. Once found they hold for all later passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// A step's bits, computed twice: a checksum of its loss and of all its gradients.
struct StepBits {
  std::uint64_t first = 0, again = 0;
};

enum class WrongBits {
  changing,   // twice on the same rank, with different bits
  different,  // the same twice, but not those of the others, or of earlier passes
  disputed,   // the ranks of a kind differ, and no bits have the majority
};

struct WrongStep {
  int rank = 0, step = 0;
  WrongBits kind = WrongBits::changing;
};

class ReplayVotes {
 public:
  // Bits by rank and step. `kind_of_rank`: ranks with the same processor and device.
  std::vector<WrongStep> judge(std::span<const std::vector<StepBits>> bits,
                               std::span<const int> kind_of_rank);
  // The number of steps that were compared with something, so far.
  std::int64_t compared() const { return compared_; }

 private:
  std::map<std::pair<int, std::size_t>, std::uint64_t> right_;  // by kind and step
  std::int64_t compared_ = 0;
};

}  // namespace lockstep
