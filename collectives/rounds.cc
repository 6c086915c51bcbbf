#include "collectives/rounds.h"

#include <algorithm>
#include <bit>

namespace lockstep {

// Message m leaves a rank when message m - 1 has left, and when message m - lead has arrived. The
// longest chain of these determines the time. The chain stays at a rank whose right neighbour is on
// another node, one message further each time, or it moves to the right, `lead` messages further;
// the last message always moves. Of k moves in a row one leaves a node. So the chain either moves
// once, or in whole laps from one such rank to the next, or as often as it can.
double ring_seconds(int ranks, int ranks_per_node, int messages, double bytes,
                    const LinkModel& links, int lead) {
  if (ranks == 1 || messages == 0) return 0;
  const bool one_node = ranks_per_node >= ranks;
  const bool nodes_are_full = ranks_per_node > 0 && ranks % ranks_per_node == 0;
  const int k = one_node || !nodes_are_full ? 1 : ranks_per_node;
  const Link& across = one_node ? links.inside : links.between;
  const double staying_s = bytes * across.beta_s_per_byte;
  const int most_moves = (messages - 1) / lead + 1;
  double longest_s = 0;
  for (const int moves : {1, (most_moves - 1) / k * k + 1, most_moves}) {
    const int between = (moves + k - 1) / k;
    longest_s = std::max(longest_s, between * across.seconds(bytes) +
                                        (moves - between) * links.inside.seconds(bytes) +
                                        (messages - 1 - (moves - 1) * lead) * staying_s);
  }
  return longest_s;
}

double doubling_seconds(int ranks, int ranks_per_node, double bytes, bool grows,
                        const LinkModel& links) {
  const bool is_aligned =
      ranks_per_node >= ranks || std::has_single_bit(static_cast<unsigned>(ranks_per_node));
  double seconds = 0;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const bool is_inside = is_aligned && distance < ranks_per_node;
    seconds += (is_inside ? links.inside : links.between).seconds(grows ? distance * bytes : bytes);
  }
  return seconds;
}

}  // namespace lockstep
