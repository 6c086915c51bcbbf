#include "parallel/plan/context_split.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

TokenOrder token_order_from_name(std::string_view name) {
  if (name == "contiguous") return TokenOrder::contiguous;
  if (name == "striped" || name == "balanced") return TokenOrder::striped;
  require(name == "zig-zag", fmt::format("--layout '{}'", name),
          "choose contiguous, zig-zag, striped or balanced");
  return TokenOrder::zig_zag;
}

Count attention_pairs(const TokenLayout& layout, Count length) {
  const Count c = layout.ranks, r = layout.rank, n = length / c, e = n / 2;
  switch (layout.order) {
    case TokenOrder::whole:
      return length * (length + 1) / 2;
    case TokenOrder::contiguous:
      return r * n * n + n * (n + 1) / 2;
    case TokenOrder::zig_zag:
      return e * e * (2 * c - 1) + e * (e + 1);
    case TokenOrder::striped:
      return c * n * (n - 1) / 2 + n * (r + 1);
  }
  return 0;
}

}  // namespace lockstep
