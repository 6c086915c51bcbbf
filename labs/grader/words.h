// Answers as words, and what wrong numbers among them show.
#pragma once

#include <string>
#include <vector>

#include "labs/grader/ranks.h"

namespace lockstep {

using Words = std::vector<std::string>;

// Sums may be rounded differently. A cause must give the same far more closely than right numbers, so
// that no other one is near.
inline constexpr double relative_of_right = 1e-10, relative_of_cause = 1e-12;

// Equal words, or numbers that differ by this part of `b` at most.
bool is_same(const std::string& a, const std::string& b, double relative = relative_of_right);
bool is_same(const Words& a, const Words& b);

Words words_of(const RankRun& run);

// The words after the last name before word i, up to the next name.
struct Named {
  std::string name;  // empty: the whole answer
  std::size_t first;
  Words words;
};
Named named_at(const Words& words, std::size_t i);

// Returns the cause as far as the numbers alone show it, whatever the lab; empty if they do not.
std::string cause_in_numbers(const Words& own, const Words& right, int ranks);

}  // namespace lockstep
