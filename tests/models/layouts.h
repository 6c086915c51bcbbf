// The layouts that split sequences, for tests of each.
#pragma once

#include "models/data/token_layout.h"

namespace lockstep {

inline constexpr TokenOrder split_orders[] = {TokenOrder::contiguous, TokenOrder::zig_zag,
                                              TokenOrder::striped};

}  // namespace lockstep
