// Which tokens of every sequence a rank has if c ranks share the sequences (context parallelism).
// With 8 tokens:
//
//                  c = 2, rank 0   rank 1
//   whole          0 1 2 3 4 5 6 7 on both
//   contiguous     0 1 2 3         4 5 6 7
//   zig_zag        0 1 6 7         2 3 4 5      chunks r and 2c - 1 - r of 2c
//   striped        0 2 4 6         1 3 5 7
//
// In causal attention, zig-zag ranks have equally many pairs of queries and keys, and striped ranks
// nearly so; with contiguous ranks the last one has 2c - 1 times as many as the first. Striped:
// Brandon et al., "Striped attention", 2023.
//
// A group of neighbours can share the tokens that one of these ranks would have, in consecutive
// parts.
#pragma once

#include "models/positions.h"

namespace lockstep {

enum class TokenOrder : std::uint8_t { whole, contiguous, zig_zag, striped };

struct TokenLayout {
  TokenOrder order = TokenOrder::whole;
  int ranks = 1, rank = 0;
  int parts = 1, part = 0;
  bool balanced = false;  // documents lie in the order of balanced_orders()

  // How many ranks share a sequence.
  int sharers() const { return order == TokenOrder::whole ? 1 : ranks * parts; }
  // This rank's positions in a sequence of that length, and its group's. Throws Error (bad_input) if
  // the length is not a multiple of the ranks, or of twice the groups for zig_zag.
  Positions positions(Count length) const;
  Positions positions_of_group(Count length) const;
};

}  // namespace lockstep
