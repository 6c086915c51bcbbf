// Planted faults of links in virtual time: a rank's own link, or the cable between two ranks, carries
// bytes more slowly than the model of the links says.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct LinkSlowdown {
  int rank = 0;
  std::optional<int> peer = {};  // none: the rank's own link, which all its messages cross
  // A byte takes this many times as long, in both directions. The latency stays the same.
  double factor = 1;

  bool operator==(const LinkSlowdown&) const = default;
  bool slows(int from, int to) const;
};

// The factor for a message between two ranks: that of the slowest part on its way; 1 if none is slow.
double slow_factor(std::span<const LinkSlowdown> slowdowns, int from, int to);

// Reads "RANK:FACTOR", or "RANK-RANK:FACTOR" for a cable, as a user writes them in --slow-link. Throws
// Error (bad_input) if the syntax, a rank or the factor is wrong.
LinkSlowdown given_slowdown(std::string_view text, int ranks);
// "2:10" or "2-5:10": given_slowdown reads it as the same.
std::string text_of(const LinkSlowdown& slowdown);

}  // namespace lockstep
