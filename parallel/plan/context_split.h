// How ranks share the tokens of every sequence (context parallelism), as data. There are two
// methods, which can be combined; 8 ranks with --ulysses 2 and --ring 4:
//
//   groups    0 1 | 2 3 | 4 5 | 6 7   each group has the tokens that one of 4 ranks would have
//   inside    Ulysses: the 2 ranks exchange tokens for heads, so each attends with half of the heads
//             to all tokens of the group
//   between   ring or all-gather: queries of each group attend to keys and values of all 4
#pragma once

#include <string_view>

#include "models/data/token_layout.h"
#include "models/split.h"

namespace lockstep {

struct ContextSplit {
  TokenLayout layout;             // its ranks are the groups, its parts the ranks of a group
  bool rings = false;             // between groups; otherwise they all-gather
  bool returns_all_hops = false;  // in a ring of c, gradients travel c hops instead of c - 1

  int groups() const { return layout.ranks; }
  int group() const { return layout.rank; }
  int ranks_of_group() const { return layout.parts; }
  HeadSplit heads() const { return {.ranks = layout.parts, .rank = layout.part}; }
};

// contiguous, zig-zag, striped, or balanced, which cuts as striped does. Throws Error (bad_input)
// for another name.
TokenOrder token_order_from_name(std::string_view name);

// Returns the (query, key) pairs of causal attention between one group's queries and all keys: the
// work of one head and one sequence. With c groups of n = length / c tokens,
// r of them before this one, and e = n / 2:
//
//   contiguous   r n^2 + n (n + 1) / 2
//   zig-zag      e^2 (2c - 1) + e (e + 1), the same for all
//   striped      c n (n - 1) / 2 + n (r + 1)
Count attention_pairs(const TokenLayout& layout, Count length);

}  // namespace lockstep
